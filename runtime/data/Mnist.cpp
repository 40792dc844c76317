// MNIST: four IDX files whose sizes must agree.
#include "runtime/data/Mnist.h"
#include "runtime/base/Error.h"

#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace cleave {

MnistSource::Part MnistSource::load(const std::string &folder, const std::string &prefix, int64_t classes) {
  const std::string images = folder + "/" + prefix + "-images-idx3-ubyte";
  const std::string labels = folder + "/" + prefix + "-labels-idx1-ubyte";
  Part part{readIdx(images, 3), readIdx(labels, 1)};
  if (part.images.dims[0] != part.labels.dims[0])
    throw userError(fmt::format("{}: has {} labels, the images file beside it has {} images", labels,
                                part.labels.dims[0], part.images.dims[0]));
  if (part.images.dims[0] == 0)
    throw userError(fmt::format("{}: holds no image", images));
  for (size_t i = 0; i < part.labels.data.size(); ++i)
    if (part.labels.data[i] >= classes)
      throw userError(fmt::format("{}: the model has {} classes, so labels lie in [0, {}), found {} at index {}",
                                  labels, classes, classes, part.labels.data[i], i));
  return part;
}

MnistSource::MnistSource(const std::string &folder, int64_t classes)
    : train(load(folder, "train", classes)), eval(load(folder, "t10k", classes)) {
  const auto &a = train.images.dims, &b = eval.images.dims;
  if (a[1] != b[1] || a[2] != b[2])
    throw userError(fmt::format("{}: training images are {}x{}, test images {}x{}", folder, a[1], a[2], b[1], b[2]));
  fieldList = {{"image", FieldType::F32, {1, a[1], a[2]}, 0}, {"label", FieldType::I32, {}, classes}};
}

void MnistSource::read(Split split, int64_t index, size_t field, std::byte *dst) const {
  const Part &from = part(split);
  assert(index >= 0 && index < from.labels.dims[0] && field < 2);
  if (field == 1) {
    const int32_t label = from.labels.data[size_t(index)];
    std::memcpy(dst, &label, sizeof label);
    return;
  }
  const size_t count = size_t(fieldList[0].elements());
  const uint8_t *pixel = from.images.data.data() + size_t(index) * count;
  float *out = reinterpret_cast<float *>(dst);
  for (size_t i = 0; i < count; ++i)
    out[i] = float(pixel[i]) / 255.0f;
}

} // namespace cleave
