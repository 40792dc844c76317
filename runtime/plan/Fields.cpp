// Walks over the fields of a plan by the declarations of its schema.
#include "runtime/plan/Fields.h"

#include "runtime/plan/Slices.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/check/Defects.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace cleave::check {

namespace {

using flatbuffers::ReadScalar;

/// What an offset at this place refers to.
const uint8_t *follow(const uint8_t *at) { return at + ReadScalar<flatbuffers::uoffset_t>(at); }

Wide integerAt(reflection::BaseType type, const uint8_t *at) {
  switch (type) {
  case reflection::Int:
    return ReadScalar<int32_t>(at);
  case reflection::UInt:
    return ReadScalar<uint32_t>(at);
  case reflection::Long:
    return ReadScalar<int64_t>(at);
  case reflection::ULong:
    return ReadScalar<uint64_t>(at);
  default: // FieldTypes.cpp admits no other types
    return ReadScalar<uint8_t>(at);
  }
}

} // namespace

bool Number::allowed() const {
  if (field.any)
    return true;
  return field.isReal() ? real >= field.lowReal && real <= field.highReal : value >= low && value <= high;
}

void FieldVisitor::number(const FieldWalk &, const Number &) {}
void FieldVisitor::text(const FieldWalk &, const FieldType &, std::string_view) {}
bool FieldVisitor::list(const FieldWalk &, const FieldType &, const uint8_t *, uint32_t) { return true; }

FieldWalk::FieldWalk(const plan::Plan &plan, FieldVisitor &visitor) : plan(plan), visitor(visitor) {
  bound(Bound::Axes) = length(plan.mesh());
  bound(Bound::Tensors) = length(plan.tensors());
  bound(Bound::Kernels) = length(plan.kernels());
  bound(Bound::Groups) = length(plan.groups());
  bound(Bound::Programs) = length(plan.programs());
  bound(Bound::Ranks) = length(plan.ranks());
  bound(Bound::Stages) = length(plan.stages());
  bound(Bound::Strings) = length(plan.strings());
  bound(Bound::Microbatches) = std::max(1u, plan.microbatches());
  bound(Bound::PipelineRanks) = static_cast<uint64_t>(sizeOfAxis(plan, AxisRole::Pipeline));
}

void FieldWalk::run() { table(planType(), *reinterpret_cast<const flatbuffers::Table *>(&plan)); }

std::string FieldWalk::path() const {
  std::string text;
  for (const Place &place : places) {
    text += (text.empty() ? "" : ".") + (place.variant ? place.variant->name : place.field->name);
    if (place.entry >= 0)
      text += fmt::format("[{}]", place.entry);
  }
  return text;
}

void FieldWalk::table(const ObjectType &type, const flatbuffers::Table &table) {
  enter(type, &table);
  for (const FieldType &each : type.fields) {
    places.push_back({&each});
    field(each, table);
    places.pop_back();
  }
}

void FieldWalk::field(const FieldType &field, const flatbuffers::Table &table) {
  const uint8_t *at = table.GetAddressOf(field.offset);
  if (field.base != reflection::Vector && field.isNumber())
    return number(field, at);
  if (!at)
    return;
  if (field.base == reflection::Vector)
    return list(field, follow(at));
  if (field.base == reflection::String)
    return visitor.text(*this, field, reinterpret_cast<const flatbuffers::String *>(follow(at))->string_view());
  if (field.base == reflection::Union) { // the field before it is its type
    const auto which = table.GetField<uint8_t>(static_cast<flatbuffers::voffset_t>(field.offset - 2), 0);
    if (which >= field.variants.size() || !field.variants[which])
      return;
    places.back().variant = field.variants[which];
    return this->table(*field.variants[which], *reinterpret_cast<const flatbuffers::Table *>(follow(at)));
  }
  if (field.object->isStruct)
    return structure(*field.object, at);
  this->table(*field.object, *reinterpret_cast<const flatbuffers::Table *>(follow(at)));
}

void FieldWalk::list(const FieldType &field, const uint8_t *vector) {
  const auto entries = ReadScalar<flatbuffers::uoffset_t>(vector);
  const uint8_t *data = vector + sizeof(flatbuffers::uoffset_t);
  if (!visitor.list(*this, field, data, entries))
    return;
  if (field.object && field.object->name == "Action")
    actions = reinterpret_cast<const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *>(vector);
  for (uint32_t i = 0; i < entries; ++i) {
    const uint8_t *at = data + size_t{i} * field.elementBytes;
    places.back().entry = i;
    if (field.isNumber())
      number(field, at);
    else if (field.element == reflection::String)
      visitor.text(*this, field, reinterpret_cast<const flatbuffers::String *>(follow(at))->string_view());
    else if (field.object->isStruct)
      structure(*field.object, at);
    else
      table(*field.object, *reinterpret_cast<const flatbuffers::Table *>(follow(at)));
  }
}

void FieldWalk::structure(const ObjectType &type, const uint8_t *at) {
  enter(type, at);
  for (const FieldType &field : type.fields) {
    places.push_back({&field});
    number(field, at + field.offset);
    places.pop_back();
  }
}

void FieldWalk::number(const FieldType &field, const uint8_t *at) {
  Number number{field, at};
  if (field.isReal()) {
    number.real = at ? ReadScalar<double>(at) : field.defaultReal;
  } else {
    number.value = at ? integerAt(field.element, at) : Wide{field.defaultInteger};
    number.low = field.low;
    number.high = field.bound == Bound::None ? field.high : bounds[static_cast<size_t>(field.bound)] - 1;
  }
  visitor.number(*this, number);
}

/// Sets the bounds of the indices in an object.
void FieldWalk::enter(const ObjectType &type, const void *object) {
  if (type.name == "Program")
    return enterProgram(*static_cast<const plan::Program *>(object));
  if (type.name == "Action") {
    bound(Bound::Actions) = length(actions);
    bound(Bound::Steps) = stepsOf(places.back().entry);
  } else if (type.name == "Wait") {
    bound(Bound::StepsOfOther) = stepsOf(static_cast<const plan::Wait *>(object)->on_action());
  }
}

void FieldWalk::enterProgram(const plan::Program &entered) {
  program = &entered;
  bound(Bound::Slots) = length(entered.slots());
  bound(Bound::Segments) = length(entered.segments());
  bound(Bound::Layouts) = length(entered.layouts());
  std::array<uint32_t, 3> least;
  least.fill(std::numeric_limits<uint32_t>::max());
  bool runs = false;
  for (uint32_t r = 0; r < length(plan.ranks()); ++r)
    if (const plan::Rank &rank = *plan.ranks()->Get(r); rank.program() == places.back().entry) {
      least = {std::min(least[0], length(rank.groups())), std::min(least[1], length(rank.peers())),
               std::min(least[2], length(rank.scalars()))};
      runs = true;
    }
  bound(Bound::RankGroups) = runs ? least[0] : 0;
  bound(Bound::RankPeers) = runs ? least[1] : 0;
  bound(Bound::RankScalars) = runs ? least[2] : 0;
  bound(Bound::Streams) = replicaStream(plan, places.back().entry) + 1;
}

uint32_t FieldWalk::stepsOf(Wide action) const {
  if (action < 0 || action >= Wide{length(actions)})
    return 0;
  const uint32_t segment = actions->Get(static_cast<uint32_t>(action))->segment();
  return segment < length(program->segments()) ? length(program->segments()->Get(segment)->steps()) : 0;
}

} // namespace cleave::check
