// MNIST: four IDX files with consistent sizes.
#include "runtime/data/Mnist.h"
#include "runtime/base/Error.h"
#include "runtime/base/Sha256.h"

#include <cassert>
#include <cstring>
#include <fmt/format.h>
#include <functional>

namespace cleave {

static void checkLabels(const IdxArray &labels, const std::string &file, int64_t images, int64_t classes) {
  if (images != labels.dims[0])
    throw userError(
        fmt::format("{}: has {} labels, the images file beside it has {} images", file, labels.dims[0], images));
  for (size_t i = 0; i < labels.data.size(); ++i)
    if (labels.data[i] >= classes)
      throw userError(fmt::format("{}: the model has {} classes, so labels lie in [0, {}), found {} at index {}", file,
                                  classes, classes, labels.data[i], i));
}

std::vector<std::string> MnistSource::files(const std::string &folder) {
  std::vector<std::string> paths;
  for (const char *name : {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"})
    for (const char *ending : {"-ubyte", "-ubyte.gz"})
      paths.push_back(folder + "/" + name + ending);
  return paths;
}

MnistPart MnistPart::read(const std::string &folder, Split split, int64_t classes, bool labels) {
  const char *prefix = split == Split::Train ? "train" : "t10k";
  const std::string images = folder + "/" + prefix + "-images-idx3-ubyte";
  MnistPart part{readIdx(images, 3), {}};
  if (part.count() == 0)
    throw userError(fmt::format("{}: holds no image", images));
  if (labels) {
    const std::string file = folder + "/" + prefix + "-labels-idx1-ubyte";
    part.labels = readIdx(file, 1);
    checkLabels(part.labels, file, part.count(), classes);
  }
  return part;
}

std::string MnistPart::fingerprint() const {
  Sha256 hash;
  for (const IdxArray &array : {std::cref(images), std::cref(labels)}) {
    hash.update({reinterpret_cast<const uint8_t *>(array.dims.data()), array.dims.size() * sizeof array.dims[0]});
    hash.update(array.data);
  }
  return "sha256:" + toHex(hash.finish());
}

MnistSource::MnistSource(const std::string &folder, int64_t classes, DataNeeds needs) {
  if (needs.train)
    train = MnistPart::read(folder, Split::Train, classes, needs.labels);
  if (needs.eval)
    eval = MnistPart::read(folder, Split::Eval, classes, needs.labels);
  const auto &a = (needs.train ? train : eval).images.dims, &b = (needs.eval ? eval : train).images.dims;
  if (a[1] != b[1] || a[2] != b[2])
    throw userError(fmt::format("{}: training images are {}x{}, test images {}x{}", folder, a[1], a[2], b[1], b[2]));
  fieldList = {{"image", FieldType::F32, {1, a[1], a[2]}, 0}, {"label", FieldType::I32, {}, classes}};
}

void MnistSource::read(Split split, int64_t index, size_t field, std::byte *dst) const {
  const MnistPart &from = part(split);
  assert(index >= 0 && index < from.count() && field < 2);
  if (field == 1) {
    assert(!from.labels.dims.empty() && "labels were said not to be needed");
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
