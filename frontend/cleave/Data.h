// Data sets for training. The model's forward receives all fields of the data set except the last, and the loss
// receives the last (or the last few: TrainConfig::targets).
#pragma once
#include "cleave/Dataset.h"
#include "cleave/Transforms.h"

#include <cstdint>
#include <memory>
#include <variant>

namespace cleave {

/// Images and labels in MNIST's IDX files (gzipped or not): "image" f32 [channels, size, size] in [0, 1], "label" i32.
struct Mnist {
  int64_t channels = 1, size = 28, classes = 10;
};

/// Characters of a text file: "tokens" and "targets" (the next character for each token), i32 [context].
struct Text {
  int64_t context = 64;
  int64_t vocab = 128; ///< character codes lie in [0, vocab)
};

/// Random images and labels, for benchmarks: "image" f32 [channels, height, width], "label" i32.
struct SyntheticImages {
  int64_t channels = 3, height = 224, width = 224, classes = 1000;
};

/// Pictures with a class each: "image" [channels, height, width], "label" i32. The image reaches the plan as bytes and
/// the model's forward as f32, divided by 255 and normalised (RandomErasing: as f32). What --data holds decides how they
/// are read: DIR/train/CLASS/* and DIR/val/CLASS/*, DIR/train/*.tar (WebDataset), DIR/train/*.rec or DIR/train.rec
/// (MXNet), or MNIST's IDX files. Files are JPEG or PNG. `channels` is 3, or 1 of grey.
struct Pictures {
  int64_t channels = 3, height = 224, width = 224, classes = 1000;
  Transforms train = {}, eval = {}; ///< without any, pictures must have the model's size
};

/// A user-defined data set: derive from Dataset (Dataset.h) and assign `std::make_shared<MyData>()` to
/// TrainConfig::data. Its last field is the loss's target.
using Data = std::variant<Mnist, Text, SyntheticImages, std::shared_ptr<Dataset>, Pictures>;

} // namespace cleave
