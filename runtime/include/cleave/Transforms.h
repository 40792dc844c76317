// Transforms of pictures, as values: what is done to a picture before the model is given it. The names and the numbers
// are torchvision's. A list of them belongs to a data set of pictures (Data.h); plans and checkpoints store it.
//
// The transforms work in the order of the list. Those before Normalize get pictures of 8 bits a channel, RandomErasing
// also what Normalize has made. Without Normalize the model is given values in [0, 1]. The last picture must have the
// model's size.
//
//   Transforms train{RandomResizedCrop{224}, HorizontalFlip{}, Normalize{}};
//   Transforms eval{Resize{256}, CenterCrop{224}, Normalize{}};
//
// Random numbers depend on the seed, the epoch and the sample alone (Random.h).
#pragma once
#include <array>
#include <cstdint>
#include <variant>
#include <vector>

namespace cleave {

/// Filters of Resize and RandomResizedCrop: those of Pillow, which widen where a picture becomes smaller
/// (antialiasing).
enum class Resampling : uint8_t { Bilinear, Bicubic };

/// Scales a picture so that its shorter edge has `size` pixels; with a `width`, to exactly that width and the height
/// `size`.
struct Resize {
  int64_t size;
  int64_t width = 0;
  Resampling filter = Resampling::Bilinear;
};

/// The middle of a picture, `size` pixels high and `width` wide (0: as many). Black surrounds a picture that is
/// smaller.
struct CenterCrop {
  int64_t size;
  int64_t width = 0;
};

/// A random part of a picture, with `padding` black pixels around it.
struct RandomCrop {
  int64_t size;
  int64_t width = 0; ///< 0: as `size`
  int64_t padding = 0;
};

/// A random part with a random share of the area and a random ratio of width to height, scaled to `size` x `width`
/// (Szegedy et al. 2015, Going deeper with convolutions).
struct RandomResizedCrop {
  int64_t size;
  int64_t width = 0; ///< 0: as `size`
  double leastArea = 0.08, mostArea = 1;
  double leastRatio = 3.0 / 4, mostRatio = 4.0 / 3;
  Resampling filter = Resampling::Bilinear;
};

/// Mirrors a picture with this probability.
struct HorizontalFlip {
  double probability = 0.5;
};

/// Changes brightness, contrast and saturation by a random factor in [1 - x, 1 + x], and the hue by a random part in
/// [-hue, hue] of the circle of colours, in random order.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0;
  double hue = 0; ///< at most 0.5
};

/// (x / 255 - mean) / deviation for red, green and blue; grey takes the first. By default ImageNet's.
struct Normalize {
  std::array<double, 3> mean{0.485, 0.456, 0.406}, deviation{0.229, 0.224, 0.225};
};

/// Sets a random box to `value`, with this probability (Zhong et al. 2020, Random erasing data augmentation).
struct RandomErasing {
  double probability = 0.5;
  double leastArea = 0.02, mostArea = 0.33;
  double leastRatio = 0.3, mostRatio = 3.3;
  double value = 0; ///< as the model is given it
};

using Transform = std::variant<Resize, CenterCrop, RandomCrop, RandomResizedCrop, HorizontalFlip, ColorJitter,
                               Normalize, RandomErasing>;
using Transforms = std::vector<Transform>;

/// What ImageNet is usually trained with, and evaluated with: the middle 7/8 of the shorter edge.
inline Transforms imageNetTraining(int64_t size) { return {RandomResizedCrop{size}, HorizontalFlip{}, Normalize{}}; }
inline Transforms imageNetEvaluation(int64_t size) { return {Resize{size * 8 / 7}, CenterCrop{size}, Normalize{}}; }

} // namespace cleave
