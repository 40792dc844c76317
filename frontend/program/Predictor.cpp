// Predictor: passes host values to a loaded prediction and returns its outputs.
#include "frontend/program/Npy.h"
#include "frontend/program/PredictorImpl.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/data/UserData.h"
#include "runtime/plan/DTypes.h"
#include "runtime/session/Launcher.h"

#include <cstring>
#include <fmt/format.h>

namespace cleave {

namespace {

/// The types of fields have the variant's order.
FieldType typeOf(const Predictor::Values &values) { return static_cast<FieldType>(values.index()); }

/// The caller's values as a data set with one split.
class HostData final : public DataSource {
public:
  HostData(const std::vector<DataField> &fields, const std::vector<Predictor::Values> &inputs);
  const std::vector<DataField> &fields() const override { return list; }
  int64_t samples(Split) const override { return count; }
  void read(Split, int64_t index, size_t field, std::byte *dst) const override {
    std::memcpy(dst, valuesOf(index, field), static_cast<size_t>(list[field].bytes()));
  }

  void check(const std::vector<ValueCheck> &checks) const;

private:
  const std::byte *valuesOf(int64_t index, size_t field) const {
    const auto *from = std::visit([](auto s) { return reinterpret_cast<const std::byte *>(s.data()); }, inputs[field]);
    return from + static_cast<size_t>(index * list[field].bytes());
  }

  const std::vector<DataField> &list;
  const std::vector<Predictor::Values> &inputs;
  int64_t count = 0;
};

HostData::HostData(const std::vector<DataField> &fields, const std::vector<Predictor::Values> &inputs)
    : list(fields), inputs(inputs) {
  if (inputs.size() != fields.size())
    throw userError(fmt::format("predictor: the model reads {} fields, found {}", fields.size(), inputs.size()));
  for (size_t i = 0; i < fields.size(); ++i) {
    const DataField &field = fields[i];
    if (typeOf(inputs[i]) != field.dtype)
      throw userError(fmt::format("predictor: field {} is {}, found {}", field.name, dtypeName(planned(field.dtype)),
                                  dtypeName(planned(typeOf(inputs[i])))));
    const auto size = static_cast<int64_t>(std::visit([](auto s) { return s.size(); }, inputs[i]));
    if (size % field.elements())
      throw userError(fmt::format("predictor: field {} has {} values a sample, which do not divide the {} found",
                                  field.name, field.elements(), size));
    if (i > 0 && size / field.elements() != count)
      throw userError(fmt::format("predictor: field {} has {} samples, field {} has {}", field.name,
                                  size / field.elements(), fields[0].name, count));
    count = size / field.elements();
  }
}

void HostData::check(const std::vector<ValueCheck> &checks) const {
  for (size_t field = 0; field < checks.size(); ++field)
    for (int64_t i = 0; i < count; ++i)
      checks[field].require({Split::Eval, i}, valuesOf(i, field));
}

std::vector<std::vector<float>> collect(Prediction &prediction, const DataSource &source, Split split) {
  std::vector<std::vector<float>> values(prediction.outputs().size());
  const int64_t count = source.samples(split);
  for (size_t i = 0; i < values.size(); ++i)
    values[i].reserve(static_cast<size_t>(count * prediction.outputs()[i].elements()));
  prediction.run(source, split, 0, count, [&](size_t output, std::span<const float> more) {
    values[output].insert(values[output].end(), more.begin(), more.end());
  });
  return values;
}

} // namespace

Predictor::Predictor(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Predictor::Predictor(Predictor &&) noexcept = default;
Predictor &Predictor::operator=(Predictor &&) noexcept = default;
Predictor::~Predictor() = default;

std::vector<float> Predictor::operator()(std::span<const float> input) { return run({input})[0]; }
std::vector<float> Predictor::operator()(std::span<const int32_t> input) { return run({input})[0]; }
std::vector<float> Predictor::operator()(std::span<const uint8_t> input) { return run({input})[0]; }
std::vector<float> Predictor::operator()(const Dataset &data, Split split) {
  return collect(impl->prediction, UserData(data), split)[0];
}
std::vector<std::vector<float>> Predictor::run(const std::vector<Values> &inputs) {
  const HostData data(impl->prediction.inputs(), inputs);
  data.check(impl->checks); // before the ranks read it, which an error would end
  return collect(impl->prediction, data, Split::Eval);
}

const std::vector<DataField> &Predictor::inputs() const { return impl->prediction.inputs(); }
size_t Predictor::outputs() const { return impl->prediction.outputs().size(); }
Shape Predictor::outputShape(size_t output) const { return impl->prediction.outputs().at(output).shape; }
int64_t Predictor::batch() const { return impl->prediction.batch(); }
bool Predictor::writes() const { return launchedRank() == 0; }

std::vector<std::string> outputFiles(const std::string &file, size_t outputs) {
  const bool npy = file.ends_with(".npy");
  std::vector<std::string> files{file};
  for (size_t i = 1; i < outputs; ++i)
    files.push_back(fmt::format("{}.{}{}", npy ? file.substr(0, file.size() - 4) : file, i, npy ? ".npy" : ""));
  return files;
}

std::string writePredictions(Prediction &prediction, const DataSource &source, Split split, const std::string &file,
                             bool json) {
  const int64_t count = source.samples(split);
  const bool writes = launchedRank() == 0;
  std::vector<std::unique_ptr<NpyFile>> files;
  nlohmann::ordered_json written = nlohmann::ordered_json::array();
  std::string text;
  const std::vector<std::string> paths = outputFiles(file, prediction.outputs().size());
  for (size_t i = 0; i < prediction.outputs().size(); ++i) {
    const PredictedOutput &output = prediction.outputs()[i];
    std::vector<int64_t> shape = output.shape;
    shape.insert(shape.begin(), output.count(count, prediction.batch()));
    const std::string &path = paths[i];
    if (writes)
      files.push_back(std::make_unique<NpyFile>(path, shape));
    written.push_back({{"file", path}, {"dtype", "f32"}, {"shape", shape}});
    text += fmt::format("{}{}: f32 {}", text.empty() ? "" : "\n", path, jsonText(nlohmann::json(shape)));
  }
  prediction.run(source, split, 0, count, [&](size_t output, std::span<const float> values) {
    if (writes)
      files[output]->append(values);
  });
  for (auto &each : files)
    each->commit();
  return json ? jsonText(nlohmann::ordered_json{{"samples", count}, {"outputs", written}}) : text;
}

} // namespace cleave
