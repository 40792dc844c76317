// Applies transforms (cleave/Transforms.h) to pictures, with the random numbers of a sample.
#pragma once
#include "cleave/Random.h"
#include "runtime/pictures/Picture.h"

#include <array>
#include <string>

namespace cleave {

/// The input of a model: [channels, height, width].
struct PictureShape {
  int64_t channels = 3, height = 0, width = 0;
};

/// A picture that is decoded on request.
class EncodedPicture {
public:
  virtual ~EncodedPicture() = default;
  virtual PictureSize size() const = 0;
  virtual Picture whole() const = 0;
  /// The part, scaled; by default cut out of whole(). It need not find damage elsewhere in the picture.
  virtual Picture part(const ScaledPart &part) const;
};

class AppliedTransforms {
public:
  /// Throws userError that names the transform and the rule if they cannot be (problemOf()), or if the shape's channels
  /// are neither 1 nor 3.
  AppliedTransforms(Transforms transforms, PictureShape shape);

  /// Writes the picture as the model is given it, row-major. `random`: the sample's. Throws userError that names
  /// `name` and both sizes if the last picture has not the model's size.
  void apply(const EncodedPicture &picture, const Random &random, const std::string &name, float *to) const;
  /// The same as bytes, for models that normalise them.
  void apply(const EncodedPicture &picture, const Random &random, const std::string &name, uint8_t *to) const;
  /// What Normalize makes of a channel's byte; without it, its share of 255.
  float value(size_t channel, uint8_t byte) const { return values[channel][byte]; }

  /// The reverse of Normalize: the level in [0, 1] of a channel's value, as far as no transform changed it since.
  double level(size_t channel, float value) const;

private:
  /// The picture after the transforms of pixels.
  Picture last(const EncodedPicture &picture, const Random &random, const std::string &name) const;

  Transforms list;
  PictureShape shape;
  std::array<std::array<float, 256>, 3> values; ///< by channel: what becomes of a byte
};

} // namespace cleave
