// Reads one sample, describes it, and writes it.
#include "frontend/program/ShowSample.h"
#include "frontend/program/Files.h"
#include "frontend/program/Npy.h"
#include "frontend/program/PlanDescriptions.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/data/DataFunction.h"
#include "runtime/data/PictureSource.h"
#include "runtime/data/UserData.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {
namespace {

struct Field {
  DataField description;
  std::vector<float> values; ///< integers as floats
};

std::vector<float> valuesOf(const DataField &field, const std::vector<std::byte> &bytes) {
  std::vector<float> values;
  for (int64_t i = 0; i < field.elements(); ++i)
    values.push_back(static_cast<float>(loadElement(bytes.data(), i, planned(field.dtype))));
  return values;
}

std::vector<Field> readFields(const DataSource &source, const SampleId &sample, uint64_t seed) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::byte *> to;
  const size_t count = source.fields().size();
  for (size_t i = 0; i < count; ++i)
    bytes.emplace_back(static_cast<size_t>(source.fields()[i].bytes()));
  for (auto &field : bytes)
    to.push_back(field.data());
  readSample(source, sample, seed, to);
  std::vector<Field> fields;
  for (size_t i = 0; i < count; ++i)
    fields.push_back({source.fields()[i], valuesOf(source.fields()[i], bytes[i])});
  return fields;
}

/// Puts what the model makes of the bytes of a picture in their place.
void normalise(Field &field, const AppliedTransforms &transforms) {
  if (field.description.dtype != FieldType::U8)
    return;
  field.description.dtype = FieldType::F32;
  const size_t count = field.values.size() / static_cast<size_t>(field.description.shape[0]);
  for (size_t i = 0; i < field.values.size(); ++i)
    field.values[i] = transforms.value(i / count, static_cast<uint8_t>(field.values[i]));
}

/// The picture that these values show. They lie in [0, 1], or are what `pictures` makes of pixels.
Picture shown(const Field &field, const PictureSource *pictures, Split split) {
  const std::vector<int64_t> &shape = field.description.shape;
  if (shape.size() != 3 || (shape[0] != 1 && shape[0] != 3))
    throw userError(fmt::format("-o FILE.png: field {} must be [1 or 3, height, width], it is [{}]",
                                field.description.name, fmt::join(shape, ", ")));
  Picture picture{shape[2], shape[1], {}};
  const int64_t count = shape[1] * shape[2];
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < 3; ++c) {
      const float value = field.values[static_cast<size_t>((shape[0] == 1 ? 0 : c) * count + i)];
      const double level = pictures ? pictures->transforms(split).level(static_cast<size_t>(c), value) : value;
      picture.pixels.push_back(static_cast<uint8_t>(std::lround(255 * std::clamp(level, 0.0, 1.0))));
    }
  return picture;
}

void write(const std::string &path, const Field &field, const PictureSource *pictures, Split split) {
  if (path.ends_with(".png")) {
    const std::vector<uint8_t> bytes = encodePng(shown(field, pictures, split));
    AtomicFile file(path);
    file.write(bytes.data(), bytes.size());
    file.commit();
    return;
  }
  NpyFile file(path, field.description.shape);
  file.append(field.values);
  file.commit();
}

} // namespace

void showSample(const Data &data, const RunOptions &options, const SampleRequest &request) {
  const Split split = request.split == "eval" ? Split::Eval : Split::Train;
  if (!request.output.empty() && !request.output.ends_with(".npy") && !request.output.ends_with(".png"))
    throw userError(fmt::format("-o {}: writes FILE.npy or FILE.png", request.output));
  if (!request.file.empty() && request.index)
    throw userError(fmt::format("--index {}: cannot be combined with --file {}", *request.index, request.file));
  openOwnData(data, options);
  const std::string place = dataPlace(data, options);
  const uint64_t seed = options.seed.value_or(0);
  std::unique_ptr<DataSource> source;
  if (const Dataset *own = customData(data); own && place != "synthetic")
    source = std::make_unique<UserData>(*own);
  else
    source = openData(
        DataSpec::of(dataOf(data)), place, seed, {},
        {.train = split == Split::Train, .eval = split == Split::Eval, .fastDecode = options.decode == "fast"});
  const auto *pictures = dynamic_cast<const PictureSource *>(source.get());
  const int64_t count = source->samples(split), index = request.index.value_or(0);
  const SampleId sample{split, index, split == Split::Train ? 1 : 0};
  std::vector<Field> fields;
  std::string name = request.file;
  if (!request.file.empty()) {
    if (!pictures)
      throw userError(fmt::format("--file {}: only a data set of pictures reads files", request.file));
    const DataField &image = source->fields()[0];
    std::vector<std::byte> bytes(static_cast<size_t>(image.bytes()));
    Random random(seed, sample.epoch, 0);
    pictures->readFile(request.file, split, random, bytes.data());
    fields.push_back({image, valuesOf(image, bytes)});
  } else {
    if (index < 0 || index >= count)
      throw userError(fmt::format("--index {}: the {} split has samples 0 to {}", index, splitName(split), count - 1));
    fields = readFields(*source, sample, seed);
    if (pictures)
      name = pictures->name(split, index);
  }
  if (pictures)
    normalise(fields[0], pictures->transforms(split));
  if (!request.output.empty())
    write(request.output, fields[0], pictures, split);

  nlohmann::ordered_json json{{"split", request.split}, {"samples", count}};
  if (request.file.empty())
    json["index"] = index;
  if (!name.empty())
    json["file"] = name;
  std::string text = request.file.empty()
                         ? fmt::format("{} of {}{}\n", sampleName(sample), count, name.empty() ? "" : ", " + name)
                         : name + "\n";
  json["fields"] = nlohmann::ordered_json::array();
  for (const Field &field : fields) {
    const auto [least, most] = std::ranges::minmax(field.values);
    const char *type = dtypeName(planned(field.description.dtype));
    json["fields"].push_back({{"name", field.description.name},
                              {"type", type},
                              {"shape", field.description.shape},
                              {"least", least},
                              {"most", most}});
    text += fmt::format("{:<10} {} [{}]  ", field.description.name, type, fmt::join(field.description.shape, ", "));
    if (field.description.shape.empty()) {
      const auto label = static_cast<size_t>(least);
      const bool named = pictures && field.description.isLabel() && label < pictures->classes().size();
      text += fmt::format("{:g}{}\n", least, named ? " (" + pictures->classes()[label] + ")" : "");
    } else
      text += fmt::format("{:.6g} to {:.6g}\n", least, most);
  }
  if (!request.output.empty())
    text += fmt::format("{}: {}\n", request.output, fields[0].description.name);
  fmt::print("{}", options.json ? jsonText(json) + "\n" : text);
}

} // namespace cleave
