// Definitions of PlanFields.h.
#include "tests/support/PlanFields.h"

#include "runtime/plan/plan_generated.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

namespace cleave::test {

namespace {

using check::FieldType;
using check::ObjectType;
using flatbuffers::Table;
using flatbuffers::uoffset_t;

class Numbers : public check::FieldVisitor {
public:
  explicit Numbers(bool paths) : paths(paths) {}
  void number(const check::FieldWalk &at, const check::Number &number) override {
    if (number.at)
      found.push_back({&number.field, const_cast<uint8_t *>(number.at), number.value, number.low, number.high,
                       paths ? at.path() : ""});
  }
  std::vector<PlanNumber> found;

private:
  bool paths;
};

class Copier {
public:
  explicit Copier(std::optional<Alteration> altered) : altered(altered) { builder.ForceDefaults(true); }

  std::vector<uint8_t> copy(const Table &plan) {
    builder.Finish(flatbuffers::Offset<Table>(table(check::planType(), plan)), plan::PlanIdentifier());
    return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
  }
  size_t references = 0;

private:
  static const uint8_t *follow(const uint8_t *at) { return at + flatbuffers::ReadScalar<uoffset_t>(at); }
  static const Table &tableAt(const uint8_t *at) { return *reinterpret_cast<const Table *>(follow(at)); }

  /// The alteration of the list, text or table that comes next, if there is one.
  const Alteration *next() {
    const size_t number = references++;
    return altered && altered->which == number ? &*altered : nullptr;
  }

  template <typename T> static void alter(std::vector<T> &entries, const Alteration &how) {
    if (entries.empty())
      return;
    const auto at = entries.begin() + static_cast<long>(how.from % entries.size());
    const auto to = entries.begin() + static_cast<long>(how.to % entries.size());
    if (how.change == Change::Drop)
      entries.erase(at);
    else if (how.change == Change::Repeat && entries.size() < 64)
      entries.insert(to, T(*at));
    else if (how.change == Change::Swap)
      std::swap(*at, *to);
  }

  uoffset_t table(const ObjectType &type, const Table &from) {
    std::vector<uoffset_t> children(type.fields.size(), 0);
    for (size_t i = 0; i < children.size(); ++i)
      if (const FieldType &field = type.fields[i]; field.base == reflection::Vector || !field.isNumber())
        children[i] = child(field, from);
    const uoffset_t start = builder.StartTable();
    for (size_t i = 0; i < children.size(); ++i) {
      const FieldType &field = type.fields[i];
      if (children[i])
        builder.AddOffset(field.offset, flatbuffers::Offset<void>(children[i]));
      else if (field.base != reflection::Vector && field.isNumber())
        number(field, from);
    }
    return builder.EndTable(start);
  }

  void number(const FieldType &field, const Table &from) {
    const uint8_t *at = from.GetAddressOf(field.offset);
    const auto add = [&]<typename T>(T initial) {
      builder.AddElement<T>(field.offset, at ? flatbuffers::ReadScalar<T>(at) : initial, 0);
    };
    switch (field.element) {
    case reflection::Double:
      return add(field.defaultReal);
    case reflection::Long:
    case reflection::ULong:
      return add(static_cast<uint64_t>(field.defaultInteger));
    case reflection::Int:
    case reflection::UInt:
      return add(static_cast<uint32_t>(field.defaultInteger));
    default:
      return add(static_cast<uint8_t>(field.defaultInteger));
    }
  }

  /// What a field refers to; 0 if it is absent or left out.
  uoffset_t child(const FieldType &field, const Table &from) {
    const uint8_t *at = from.GetAddressOf(field.offset);
    if (!at)
      return 0;
    const Alteration *how = next();
    if (how && how->change == Change::LeaveOut)
      return 0;
    if (field.base == reflection::Vector)
      return list(field, follow(at), how);
    if (field.base == reflection::String)
      return text(at);
    if (field.base == reflection::Union) {
      const auto which = from.GetField<uint8_t>(static_cast<flatbuffers::voffset_t>(field.offset - 2), 0);
      const ObjectType *variant = which < field.variants.size() ? field.variants[which] : nullptr;
      return variant ? table(*variant, tableAt(at)) : 0;
    }
    return table(*field.object, tableAt(at));
  }

  uoffset_t text(const uint8_t *at) {
    const auto &string = *reinterpret_cast<const flatbuffers::String *>(follow(at));
    return builder.CreateString(string.c_str(), string.size()).o;
  }

  uoffset_t list(const FieldType &field, const uint8_t *vector, const Alteration *how) {
    const auto entries = flatbuffers::ReadScalar<uoffset_t>(vector);
    const uint8_t *data = vector + sizeof(uoffset_t);
    if (field.isNumber() || (field.object && field.object->isStruct)) {
      std::vector<std::vector<uint8_t>> values;
      for (uint32_t i = 0; i < entries; ++i)
        values.emplace_back(data + i * field.elementBytes, data + (i + 1) * field.elementBytes);
      if (how)
        alter(values, *how);
      const size_t align = field.object ? field.object->align : field.elementBytes;
      builder.StartVector(values.size() * field.elementBytes / align, align);
      for (size_t i = values.size(); i-- > 0;)
        builder.PushBytes(values[i].data(), values[i].size());
      return builder.EndVector(values.size());
    }
    std::vector<flatbuffers::Offset<void>> made;
    for (uint32_t i = 0; i < entries; ++i) {
      const uint8_t *at = data + i * sizeof(uoffset_t);
      made.emplace_back(field.element == reflection::String ? text(at) : table(*field.object, tableAt(at)));
    }
    if (how)
      alter(made, *how);
    return builder.CreateVector(made).o;
  }

  std::optional<Alteration> altered;
  flatbuffers::FlatBufferBuilder builder;
};

} // namespace

void PlanNumber::set(check::Wide value) const {
  const auto bits = static_cast<uint64_t>(value);
  const size_t bytes = field->element == reflection::Long || field->element == reflection::ULong ? 8
                       : field->element == reflection::Int || field->element == reflection::UInt ? 4
                                                                                                 : 1;
  std::memcpy(at, &bits, bytes); // little endian, as flatbuffers are
}

void PlanNumber::setReal(double value) const { std::memcpy(at, &value, sizeof value); }

void PlanNumber::setEdge(size_t which) const {
  if (field->isReal()) {
    const double values[] = {field->lowReal,
                             std::nextafter(field->lowReal, -INFINITY),
                             field->highReal,
                             std::nextafter(field->highReal, INFINITY),
                             NAN,
                             INFINITY,
                             -INFINITY,
                             0,
                             DBL_MIN,
                             -1};
    return setReal(values[which % edges]);
  }
  const check::Wide values[] = {low, low - 1, high, high + 1, (low + high) / 2, 0, -1, INT32_MAX, INT64_MIN, INT64_MAX};
  set(values[which % edges]);
}

std::vector<PlanNumber> numbersOf(std::vector<uint8_t> &flatbuffer, bool paths) {
  Numbers numbers(paths);
  check::FieldWalk(*flatbuffers::GetRoot<plan::Plan>(flatbuffer.data()), numbers).run();
  return std::move(numbers.found);
}

std::vector<uint8_t> copyOf(const std::vector<uint8_t> &flatbuffer, std::optional<Alteration> altered, size_t *count) {
  Copier copier(altered);
  std::vector<uint8_t> made = copier.copy(*flatbuffers::GetRoot<Table>(flatbuffer.data()));
  if (count)
    *count = copier.references;
  return made;
}

} // namespace cleave::test
