// Data sets a model can be trained on. A model's forward takes the data set's fields but the last, the loss the last
// (or the last few: TrainConfig::targets).
#pragma once
#include "cleave/Dataset.h"

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

/// Or a data set of your own: derive from Dataset (Dataset.h) and give `std::make_shared<MyData>()` to
/// TrainConfig::data. Its last field is what the loss compares with.
using Data = std::variant<Mnist, Text, SyntheticImages, std::shared_ptr<Dataset>>;

} // namespace cleave
