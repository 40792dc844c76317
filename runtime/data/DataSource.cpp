// Code shared by all data sets: field arithmetic, parsing the plan's data description, opening a built-in data set by
// name.
#include "runtime/data/DataSource.h"
#include "runtime/base/Error.h"
#include "runtime/base/UserCode.h"
#include "runtime/data/Mnist.h"
#include "runtime/data/PictureSource.h"
#include "runtime/data/Synthetic.h"
#include "runtime/data/Text.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/StoredTransforms.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

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

void Dataset::open(const std::string &path) {
  throw userError(fmt::format("--data {}: the program's own data set does not read it: leave it out, or override "
                              "Dataset::open in the program",
                              path));
}

std::vector<int64_t> Dataset::shards(Split) const { return {}; }

std::string Dataset::fingerprint(Split) const { return ""; }

void Dataset::read(const SampleId &sample, Random &, std::span<std::byte *const> to) const {
  for (size_t field = 0; field < to.size(); ++field)
    if (to[field])
      callUser([&] { return fmt::format("data field {} of {}", fields()[field].name, sampleName(sample)); },
               [&] { read(sample.split, sample.index, field, to[field]); });
}

void Dataset::read(Split, int64_t, size_t, std::byte *) const {
  throw userError("data: the data set overrides neither of the two functions Dataset::read");
}

const char *splitName(Split split) { return split == Split::Train ? "training" : "evaluation"; }

std::string sampleName(const SampleId &sample) {
  return fmt::format("{} sample {}", splitName(sample.split), sample.index);
}

void readSample(const DataSource &source, const SampleId &sample, uint64_t seed, std::span<std::byte *const> to) {
  Random random(seed, sample.epoch, sample.index);
  source.read(sample, random, to);
}

void readField(const DataSource &source, const SampleId &sample, uint64_t seed, size_t field, std::byte *to) {
  std::vector<std::byte *> list(source.fields().size());
  list[field] = to;
  readSample(source, sample, seed, list);
}

DataSpec DataSpec::of(const plan::DataT &data) {
  DataSpec spec{data.kind,       {}, data.context, data.vocab, transformsOf(data.train), transformsOf(data.eval),
                data.class_names};
  for (const auto &from : data.fields) {
    spec.fields.push_back({from->name, fieldTypeOf(from->dtype), from->shape, from->classes});
    for (const auto &rule : from->indices)
      spec.indices[from->name].push_back(
          {rule->reader, rule->start, rule->size, rule->least, rule->below, rule->ignored});
  }
  return spec;
}

DataSpec DataSpec::of(const plan::Plan &plan) {
  plan::DataT data;
  if (plan.data())
    plan.data()->UnPackTo(&data);
  return of(data);
}

const DataField *DataSpec::find(const std::string &name) const {
  const auto found = std::ranges::find(fields, name, &DataField::name);
  return found == fields.end() ? nullptr : &*found;
}

int64_t DataSpec::classes(const std::string &name) const {
  const DataField *field = find(name);
  return field ? field->classes : 0;
}

std::unique_ptr<DataSource> openData(const DataSpec &spec, const std::string &where, uint64_t seed, SyntheticSize size,
                                     DataNeeds needs) {
  if (where.empty())
    throw userError(fmt::format("--data: the model's data set ({}) needs a folder, or \"synthetic\"",
                                plan::EnumNameDataKind(spec.kind)));
  if (where == "synthetic")
    return std::make_unique<SyntheticSource>(spec.fields, size, seed, spec.vocab);
  if (spec.kind == plan::DataKind::Mnist || spec.kind == plan::DataKind::Pictures)
    return openPictures(spec, where, needs);
  if (spec.kind == plan::DataKind::Text)
    return std::make_unique<TextSource>(where, spec.context, spec.vocab, needs);
  throw userError(
      fmt::format("--data {}: the data set of this model is defined in its program: run it with that program, or "
                  "with --data synthetic",
                  where));
}

std::vector<std::string> dataFiles(plan::DataKind kind, const std::string &where) {
  if (where.empty() || where == "synthetic")
    return {};
  if (kind == plan::DataKind::Mnist || kind == plan::DataKind::Pictures)
    return MnistSource::files(where);
  if (kind == plan::DataKind::Text)
    return TextSource::files(where);
  return {where};
}

plan::DType planned(FieldType type) {
  return type == FieldType::I32 ? plan::DType::I32 : type == FieldType::U8 ? plan::DType::U8 : plan::DType::F32;
}

FieldType fieldTypeOf(plan::DType type) {
  return type == plan::DType::I32 ? FieldType::I32 : type == plan::DType::U8 ? FieldType::U8 : FieldType::F32;
}

size_t findField(const DataSource &source, const std::string &name, FieldType dtype,
                 const std::vector<int64_t> &shape) {
  DataField want{name, dtype, shape, 0};
  const auto typeName = [](FieldType type) { return dtypeName(planned(type)); };
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
