// Data sets a model can be trained on. A model's forward takes the data set's fields but the last, the loss the last.
#pragma once
#include "runtime/data/DataSource.h"

#include <cstdint>
#include <memory>
#include <variant>

namespace cleave {

/// Pictures and labels in MNIST's IDX files (gzipped or not): "image" f32 [channels, size, size] in [0, 1], "label"
/// i32.
struct Mnist {
  int64_t channels = 1, size = 28, classes = 10;
};

/// Characters of a text file: "tokens" and "targets" (each the character after its token), i32 [context].
struct Text {
  int64_t context = 64;
  int64_t vocab = 128; ///< codes lie in [0, vocab)
};

/// Random pictures and labels, for measuring: "image" f32 [channels, height, width], "label" i32.
struct SyntheticImages {
  int64_t channels = 3, height = 224, width = 224, classes = 1000;
};

/// A data set of your own: fields with names, types and shapes, a number of samples, and a function that reads one. The
/// last field is what the loss compares with. Derive from it and give `std::make_shared<MyData>()` to
/// TrainConfig::data. (The interface is the runtime's: there is nothing between the training loop and your `read`.)
using Dataset = DataSource;

using Data = std::variant<Mnist, Text, SyntheticImages, std::shared_ptr<Dataset>>;

} // namespace cleave
