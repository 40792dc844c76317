// Pictures as a data set.
#include "runtime/data/PictureSource.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>

namespace cleave {
namespace {

namespace fs = std::filesystem;

const char *folderOf(Split split) { return split == Split::Train ? "train" : "val"; }

/// Where the split's pictures are; empty if `where` holds none of this kind.
std::string placeOf(const std::string &where, Split split) {
  const std::string folder = where + "/" + folderOf(split);
  std::error_code error;
  if (fs::is_directory(folder, error))
    return folder;
  return fs::exists(folder + ".rec", error) ? folder + ".rec" : "";
}

bool holdsPictures(const std::string &where) {
  return !placeOf(where, Split::Train).empty() || !placeOf(where, Split::Eval).empty();
}

/// The file of a JPEG or PNG.
class FilePicture final : public EncodedPicture {
public:
  FilePicture(std::vector<uint8_t> bytes, std::string name, DecodeMode mode)
      : bytes(std::move(bytes)), name(std::move(name)), mode(mode) {}
  PictureSize size() const override { return pictureSize(bytes, name); }
  Picture whole() const override { return decodePicture(bytes, name); }
  Picture part(const ScaledPart &part) const override { return decodePart(bytes, name, part, mode); }

private:
  std::vector<uint8_t> bytes;
  std::string name;
  DecodeMode mode;
};

/// An image of an IDX file.
class IdxPicture final : public EncodedPicture {
public:
  IdxPicture(const IdxArray &images, int64_t index) : images(images), index(index) {}
  PictureSize size() const override { return {images.dims[2], images.dims[1]}; }
  Picture whole() const override {
    const auto [width, height] = size();
    Picture picture{width, height, {}};
    const uint8_t *from = images.data.data() + index * width * height;
    for (int64_t i = 0; i < width * height; ++i)
      picture.pixels.insert(picture.pixels.end(), 3, from[i]);
    return picture;
  }

private:
  const IdxArray &images;
  int64_t index;
};

int64_t classesOf(const DataSpec &spec) {
  const int64_t classes = spec.classes("label");
  return classes > 0 ? classes : 10;
}

const DataField &imageOf(const DataSpec &spec) {
  for (const DataField &field : spec.fields)
    if (field.dtype != FieldType::I32 && field.shape.size() == 3)
      return field;
  throw userError("data: a model of pictures has an input [channels, height, width], found none");
}

} // namespace

// ---- the pictures of a split
// -----------------------------------------------------------------------------------------

PictureSet::PictureSet(const std::string &folder, Split split, int64_t classes) : where(folder) {
  const std::string place = placeOf(folder, split);
  if (place.empty()) {
    if (holdsPictures(folder))
      throw userError(fmt::format("{}/{}: no such folder; {} pictures are needed", folder, folderOf(split),
                                  split == Split::Train ? "training" : "evaluation"));
    std::error_code error;
    if (std::ranges::none_of(MnistSource::files(folder),
                             [&](const std::string &file) { return fs::exists(file, error); }))
      throw userError(
          fmt::format("{}: holds no pictures: neither folders or tars in train and val, nor train.rec and val.rec, "
                      "nor MNIST's train-images-idx3-ubyte and the files beside it",
                      folder));
    images = MnistPart::read(folder, split, classes, true);
    return;
  }
  list.emplace(place);
  if (list->labels() <= classes)
    return;
  if (!list->classes().empty())
    throw userError(fmt::format("{}: has {} classes, the model has {}; the first too many is {}", place,
                                list->classes().size(), classes, list->classes()[static_cast<size_t>(classes)]));
  for (int64_t i = 0; i < list->count(); ++i)
    if (list->label(i) >= classes)
      throw userError(fmt::format("{}: the model has {} classes, so labels lie in [0, {}), found {}", list->name(i),
                                  classes, classes, list->label(i)));
}

int32_t PictureSet::label(int64_t index) const {
  return list ? list->label(index) : images.labels.data[static_cast<size_t>(index)];
}

std::string PictureSet::name(int64_t index) const {
  return list ? list->name(index) : fmt::format("{}: image {}", where, index);
}

void PictureSet::with(int64_t index, DecodeMode mode, const std::function<void(const EncodedPicture &)> &use) const {
  if (list)
    use(FilePicture(list->read(index), list->name(index), mode));
  else
    use(IdxPicture(images.images, index));
}

const char *PictureSet::kind() const {
  if (!list)
    return "idx";
  switch (list->kind()) {
  case PictureList::Kind::Folder:
    return "folder";
  case PictureList::Kind::Tars:
    return "tars";
  case PictureList::Kind::Records:
    return "records";
  }
  return "unknown";
}

// ---- the data set
// ----------------------------------------------------------------------------------------------------

PictureSource::PictureSource(const DataSpec &spec, const std::string &where, const DataNeeds &needs)
    : skips(needs.skipBadFiles), trainMode(needs.fastDecode ? DecodeMode::Fast : DecodeMode::Exact) {
  const DataField &image = imageOf(spec);
  const PictureShape shape{image.shape[0], image.shape[1], image.shape[2]};
  train.transforms.emplace(spec.train, shape);
  eval.transforms.emplace(spec.eval, shape);
  for (const Split split : {Split::Train, Split::Eval})
    if (split == Split::Train ? needs.train : needs.eval) {
      Part &part = split == Split::Train ? train : eval;
      part.set.emplace(where, split, classesOf(spec));
      if (skips)
        part.states = std::vector<std::atomic<State>>(static_cast<size_t>(part.set->count()));
      if (std::string_view(part.set->kind()) == "idx" && part.set->count() > 0) // all images have one size
        part.set->with(0, DecodeMode::Exact, [&](const EncodedPicture &picture) {
          std::vector<float> values(static_cast<size_t>(image.elements()));
          part.transforms->apply(picture, Random(0, 0, 0), part.set->name(0), values.data());
        });
      const std::string folder = fmt::format("{}/{}", where, folderOf(split));
      requireClasses(names, fmt::format("{}/{}", where, folderOf(Split::Train)), part.set->classes(), folder);
      requireClasses(spec.classNames, "the model", part.set->classes(), folder);
      if (names.empty())
        names = part.set->classes();
    }
  fieldList = {{image.name, image.dtype, image.shape, 0}, {"label", FieldType::I32, {}, classesOf(spec)}};
}

std::vector<int64_t> PictureSource::shards(Split split) const {
  return part(split).set ? part(split).set->shards() : std::vector<int64_t>();
}

void PictureSource::apply(const AppliedTransforms &transforms, const EncodedPicture &picture, const Random &random,
                          const std::string &name, std::byte *to) const {
  if (fieldList[0].dtype == FieldType::U8)
    transforms.apply(picture, random, name, reinterpret_cast<uint8_t *>(to));
  else
    transforms.apply(picture, random, name, reinterpret_cast<float *>(to));
}

void PictureSource::readPicture(const Part &part, int64_t index, bool check, const Random &random,
                                std::byte *to) const {
  part.set->with(index, &part == &train ? trainMode : DecodeMode::Exact, [&](const EncodedPicture &picture) {
    if (check)
      picture.whole();
    if (to)
      apply(*part.transforms, picture, random, part.set->name(index), to);
  });
}

void PictureSource::read(const SampleId &sample, Random &random, std::span<std::byte *const> to) const {
  Part &from = sample.split == Split::Train ? train : eval;
  assert(from.set && sample.index >= 0 && sample.index < from.set->count());
  int64_t index = sample.index;
  std::byte *pixels = to[0];
  for (int64_t tried = 0;; ++tried, index = (index + 1) % from.set->count()) {
    if (tried == from.set->count())
      throw environmentError(fmt::format("data: every picture of the {} split is damaged, the first is {}",
                                         splitName(sample.split), from.set->name(sample.index)));
    const State known = skips ? from.states[static_cast<size_t>(index)].load(std::memory_order_relaxed) : Good;
    if (known == Bad)
      continue;
    if (!pixels && known == Good)
      break;
    try {
      readPicture(from, index, known == Unknown, random, pixels);
    } catch (const DamagedPicture &error) {
      if (!skips)
        throw environmentError(
            fmt::format("{}; --bad-files skip trains on another picture in its place", error.what()));
      note(from, index, Bad);
      continue;
    }
    if (skips)
      note(from, index, Good);
    break;
  }
  if (to[1]) {
    const int32_t label = from.set->label(index);
    std::memcpy(to[1], &label, sizeof label);
  }
}

/// Keeps what a decoder says of a picture. All that read it must hear the same.
void PictureSource::note(Part &part, int64_t index, State found) const {
  State known = Unknown;
  if (part.states[static_cast<size_t>(index)].compare_exchange_strong(known, found) || known == found)
    return;
  throw environmentError(fmt::format("{}: was {} when it was read before and is {} now, so it was changed while it is "
                                     "trained on",
                                     part.set->name(index), known == Good ? "good" : "damaged",
                                     found == Good ? "good" : "damaged"));
}

std::vector<int64_t> PictureSource::skipped(Split split) const {
  const std::vector<std::atomic<State>> &states = part(split).states;
  std::vector<int64_t> found;
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i] == Bad)
      found.push_back(static_cast<int64_t>(i));
  return found;
}

bool PictureSource::isGood(Split split, int64_t index) const {
  const std::vector<std::atomic<State>> &states = part(split).states;
  return static_cast<size_t>(index) < states.size() && states[static_cast<size_t>(index)] == Good;
}

void PictureSource::readFile(const std::string &path, Split split, Random &random, std::byte *to) const {
  const InputFile file(path, Status::User);
  std::vector<uint8_t> bytes(static_cast<size_t>(file.size()));
  file.read(bytes.data(), bytes.size(), 0);
  apply(*part(split).transforms,
        FilePicture(std::move(bytes), path, split == Split::Train ? trainMode : DecodeMode::Exact), random, path, to);
}

std::unique_ptr<DataSource> openPictures(const DataSpec &spec, const std::string &where, const DataNeeds &needs) {
  const DataField &image = imageOf(spec);
  const bool asTheyAre =
      spec.train.empty() && spec.eval.empty() && image.shape[0] == 1 && image.dtype == FieldType::F32;
  if (asTheyAre && !holdsPictures(where))
    return std::make_unique<MnistSource>(where, classesOf(spec), needs);
  return std::make_unique<PictureSource>(spec, where, needs);
}

std::vector<std::string> classNamesAt(const std::string &where) {
  for (const Split split : {Split::Train, Split::Eval}) {
    const std::string place = placeOf(where, split);
    std::error_code error;
    if (place.empty() || !fs::is_directory(place, error))
      continue;
    std::vector<std::string> names;
    for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (it->is_regular_file(error) && (name.ends_with(".tar") || name.ends_with(".rec")))
        return {};
      if (!name.starts_with(".") && it->is_directory(error))
        names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
  return {};
}

void requireClasses(const std::vector<std::string> &known, const std::string &whose,
                    const std::vector<std::string> &found, const std::string &where) {
  if (known.empty() || found.empty() || known == found)
    return;
  for (const std::string &name : found)
    if (std::ranges::find(known, name) == known.end())
      throw userError(fmt::format("{}: has the class {}, which {} has not", where, name, whose));
  for (const std::string &name : known)
    if (std::ranges::find(found, name) == found.end())
      throw userError(fmt::format("{}: has no class {}, which {} has", where, name, whose));
  throw userError(fmt::format("{}: has the classes of {} in another order", where, whose));
}

} // namespace cleave
