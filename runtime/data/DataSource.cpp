// Code shared by all data sets: field arithmetic, parsing the plan's data description, opening a built-in data set by
// name.
#include "runtime/data/DataSource.h"
#include "runtime/base/Error.h"
#include "runtime/data/Mnist.h"
#include "runtime/data/Synthetic.h"
#include "runtime/data/Text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave {

int64_t DataField::elements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

bool DataField::isLabel() const {
  return dtype == FieldType::I32 && name != "tokens" &&
         (classes > 0 || name.starts_with("label") || name.starts_with("target"));
}

static DataField parseField(const nlohmann::json &json) {
  DataField field;
  field.name = json.at("name").get<std::string>();
  const std::string dtype = json.at("dtype").get<std::string>();
  if (dtype != "f32" && dtype != "i32")
    throw environmentError(
        fmt::format("plan data: field {}: the type must be f32 or i32, found {}", field.name, dtype));
  field.dtype = dtype == "f32" ? FieldType::F32 : FieldType::I32;
  int64_t total = 4;
  for (const auto &size : json.at("shape")) {
    field.shape.push_back(size.get<int64_t>());
    if (field.shape.back() < 1 || __builtin_mul_overflow(total, field.shape.back(), &total))
      throw environmentError(
          fmt::format("plan data: field {}: sizes must be positive, found {}", field.name, field.shape.back()));
  }
  field.classes = json.value("classes", int64_t(0));
  return field;
}

DataSpec DataSpec::parse(const std::string &text) {
  DataSpec spec;
  try {
    const auto json = nlohmann::json::parse(text);
    spec.kind = json.value("kind", "custom");
    spec.context = json.value("context", int64_t(0));
    spec.vocab = json.value("vocab", int64_t(0));
    if (json.contains("fields"))
      for (const auto &field : json.at("fields"))
        spec.fields.push_back(parseField(field));
  } catch (const nlohmann::json::exception &e) {
    throw environmentError(fmt::format("plan data: not the expected JSON object: {}", e.what()));
  }
  return spec;
}

int64_t DataSpec::classes(const std::string &name) const {
  for (const DataField &field : fields)
    if (field.name == name)
      return field.classes;
  return 0;
}

std::unique_ptr<DataSource> openData(const DataSpec &spec, const std::string &where, uint64_t seed, SyntheticSize size,
                                     DataNeeds needs) {
  if (where.empty())
    throw userError(fmt::format("--data: the model's data set ({}) needs a folder, or \"synthetic\"", spec.kind));
  if (where == "synthetic")
    return std::make_unique<SyntheticSource>(spec.fields, size, seed, spec.vocab);
  if (spec.kind == "mnist") {
    const int64_t classes = spec.classes("label");
    return std::make_unique<MnistSource>(where, classes > 0 ? classes : 10, needs);
  }
  if (spec.kind == "text")
    return std::make_unique<TextSource>(where, spec.context, spec.vocab, needs);
  throw userError(
      fmt::format("--data {}: the data set of this model ({}) is defined in its program: run it with that program, "
                  "or with --data synthetic",
                  where, spec.kind));
}

size_t findField(const DataSource &source, const std::string &name, FieldType dtype,
                 const std::vector<int64_t> &shape) {
  DataField want{name, dtype, shape, 0};
  const auto typeName = [](FieldType type) { return type == FieldType::F32 ? "f32" : "i32"; };
  for (size_t i = 0; i < source.fields().size(); ++i) {
    const DataField &field = source.fields()[i];
    if (field.name != name)
      continue;
    if (field.dtype != dtype || field.elements() != want.elements())
      throw userError(fmt::format("data field {}: the model expects {} [{}] a sample, the data set has {} [{}]", name,
                                  typeName(dtype), fmt::join(shape, ", "), typeName(field.dtype),
                                  fmt::join(field.shape, ", ")));
    return i;
  }
  std::vector<std::string> names;
  for (const DataField &field : source.fields())
    names.push_back(field.name);
  throw userError(fmt::format("data field {}: the model needs it, the data set has {}", name,
                              names.empty() ? "no fields" : fmt::format("{}", fmt::join(names, ", "))));
}

} // namespace cleave
