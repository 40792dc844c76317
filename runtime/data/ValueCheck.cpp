// Checks the values of labels, ids and other integers of a sample.
#include "runtime/data/ValueCheck.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave {

/// The row-major numbers of the elements in a box.
static std::vector<int64_t> elementsOf(const IndexRule &rule, const DataField &field) {
  const size_t rank = field.shape.size();
  bool fits = rule.start.size() == rank && rule.size.size() == rank;
  for (size_t d = 0; fits && d < rank; ++d)
    fits = rule.start[d] >= 0 && rule.size[d] >= 1 && rule.size[d] <= field.shape[d] - rule.start[d];
  if (!fits)
    throw environmentError(
        fmt::format("plan field {}: the indices of {} are not elements of it", field.name, rule.reader));
  std::vector<int64_t> elements{0};
  for (size_t d = 0; d < rank; ++d) {
    std::vector<int64_t> next;
    for (const int64_t outer : elements)
      for (int64_t i = 0; i < rule.size[d]; ++i)
        next.push_back(outer * field.shape[d] + rule.start[d] + i);
    elements = std::move(next);
  }
  return elements;
}

ValueCheck::ValueCheck(const DataSpec &spec, const DataField &field) : field(field) {
  if (field.dtype == FieldType::F32)
    return;
  const DataField *planned = spec.find(field.name);
  const int64_t model = planned ? planned->classes : 0;
  classes = model > 0 && field.classes > 0 ? std::min(model, field.classes) : std::max(model, field.classes);
  if (const auto found = spec.indices.find(field.name); planned && found != spec.indices.end())
    for (const IndexRule &rule : found->second)
      rules.push_back({rule, elementsOf(rule, *planned)});
}

int64_t ValueCheck::valueOf(const std::byte *values, int64_t element) const {
  if (field.dtype == FieldType::U8)
    return std::to_integer<int64_t>(values[element]);
  int32_t value;
  std::memcpy(&value, values + 4 * element, sizeof value);
  return value;
}

bool ValueCheck::isIgnored(int64_t value) const {
  return std::ranges::any_of(rules, [&](const Rule &one) { return value == one.rule.ignored; });
}

/// "in training sample 3", "at element 7 of training sample 3".
static std::string placeOf(const SampleId &sample, const DataField &field, int64_t element) {
  return field.elements() == 1 ? "in " + sampleName(sample)
                               : fmt::format("at element {} of {}", element, sampleName(sample));
}

void ValueCheck::requireDeclared(const SampleId &sample, const std::byte *values) const {
  for (int64_t i = 0, count = field.elements(); i < count; ++i)
    if (const int64_t value = valueOf(values, i);
        (value >= classes || (value < 0 && !field.isLabel())) && !isIgnored(value))
      throw userError(fmt::format("data field {}: values lie in [0, {}){}, found {} {}", field.name, classes,
                                  field.isLabel() ? ", or are negative to be ignored" : "", value,
                                  placeOf(sample, field, i)));
}

void ValueCheck::require(const SampleId &sample, const std::byte *values) const {
  if (classes > 0)
    requireDeclared(sample, values);
  for (const auto &[rule, elements] : rules)
    for (const int64_t i : elements)
      if (const int64_t value = valueOf(values, i);
          (value < rule.least || value >= rule.below) && value != rule.ignored)
        throw userError(fmt::format("data field {}: {} reads values in [{}, {}){}, found {} {}", field.name,
                                    rule.reader, std::max<int64_t>(rule.least, 0), rule.below,
                                    rule.least < 0 ? ", or negative ones, which it ignores" : "", value,
                                    placeOf(sample, field, i)));
}

} // namespace cleave
