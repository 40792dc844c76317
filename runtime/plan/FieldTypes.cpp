// Reads the declarations of plan.fbs from its binary form, which flatc writes into the program.
#include "runtime/plan/Fields.h"

#include "runtime/plan/plan_bfbs_generated.h"

#include <fmt/format.h>

#include <cfloat>
#include <cmath>
#include <map>
#include <stdexcept>

namespace cleave::check {

namespace {

constexpr Wide one = 1;

/// Without the namespace.
std::string shortName(std::string_view name) { return std::string(name.substr(name.rfind('.') + 1)); }

constexpr std::string_view orNone = " or -1";

/// Plan.fbs is part of the program, so a declaration that cannot be read is an error of ours.
[[noreturn]] void wrong(const ObjectType &type, const FieldType &field, const std::string &what) {
  throw std::logic_error(fmt::format("plan.fbs: {}.{}: {}", type.name, field.name, what));
}

Bound boundOf(std::string_view name) {
  static const std::map<std::string_view, Bound> names{
      {"Plan.mesh", Bound::Axes},
      {"Plan.tensors", Bound::Tensors},
      {"Plan.kernels", Bound::Kernels},
      {"Plan.groups", Bound::Groups},
      {"Plan.programs", Bound::Programs},
      {"Plan.ranks", Bound::Ranks},
      {"Plan.stages", Bound::Stages},
      {"Plan.strings", Bound::Strings},
      {"Plan.microbatches", Bound::Microbatches},
      {"axis pp", Bound::PipelineRanks},
      {"Program.slots", Bound::Slots},
      {"Program.segments", Bound::Segments},
      {"Program.layouts", Bound::Layouts},
      {"Rank.groups", Bound::RankGroups},
      {"Rank.peers", Bound::RankPeers},
      {"Rank.scalars", Bound::RankScalars},
      {"streams", Bound::Streams},
      {"actions", Bound::Actions},
      {"Segment.steps", Bound::Steps},
      {"Segment.steps of on_action", Bound::StepsOfOther},
  };
  const auto found = names.find(name);
  return found == names.end() ? Bound::None : found->second;
}

/// The smallest and the largest value of an integer type.
std::pair<Wide, Wide> typeRange(const ObjectType &type, const FieldType &field) {
  switch (field.element) {
  case reflection::Bool:
    return {0, 1};
  case reflection::UByte:
  case reflection::UType:
    return {0, UINT8_MAX};
  case reflection::Int:
    return {INT32_MIN, INT32_MAX};
  case reflection::UInt:
    return {0, UINT32_MAX};
  case reflection::Long:
    return {INT64_MIN, INT64_MAX};
  case reflection::ULong:
    return {0, Wide{UINT64_MAX}};
  case reflection::Double:
    return {0, 0};
  default:
    wrong(type, field, "numbers of this type are not known to Fields.h");
  }
}

/// One end of a range: an integer, 2^N or 2^N-1, with or without a minus sign.
double endOf(std::string_view text, Wide &whole) {
  const bool negative = text.starts_with('-');
  const std::string digits(text.substr(negative));
  char *rest = nullptr;
  double value = std::strtod(digits.c_str(), &rest);
  whole = static_cast<Wide>(value);
  if (digits.starts_with("2^")) {
    const long power = std::strtol(digits.c_str() + 2, &rest, 10);
    value = std::ldexp(1, static_cast<int>(power));
    whole = power < 126 ? one << power : 0;
    if (std::string_view(rest) == "-1") {
      whole -= 1;
      rest += 2;
    }
  }
  if (digits.empty() || *rest)
    return NAN;
  whole = negative ? -whole : whole;
  return negative ? -value : value;
}

void readRange(const ObjectType &type, FieldType &field, std::string_view text) {
  field.declared = text; // of "any" and "finite"
  if (text == "any" || (text == "finite" && field.isReal())) {
    field.any = text == "any";
    field.lowReal = -DBL_MAX, field.highReal = DBL_MAX;
    return;
  }
  field.shape = text == "shape" && field.base == reflection::Vector;
  if (text == "size" || field.shape)
    text = "0..2^46";
  field.declared = fmt::format("in {}", text);
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos)
    wrong(type, field, fmt::format("range '{}'", text));
  Wide low = 0, high = 0;
  field.lowReal = endOf(text.substr(0, dots), low);
  field.highReal = endOf(text.substr(dots + 2), high);
  const bool inside = field.isReal() || (low >= field.low && high <= field.high);
  if (!(field.lowReal <= field.highReal) || !inside)
    wrong(type, field, fmt::format("range '{}'", text));
  field.low = low, field.high = high;
}

void readIndex(const ObjectType &type, FieldType &field, std::string_view text) {
  field.low = text.ends_with(orNone) ? -1 : 0;
  const std::string_view name = field.low < 0 ? text.substr(0, text.size() - orNone.size()) : text;
  field.bound = boundOf(name);
  field.declared = name;
  if (field.bound == Bound::None || field.isReal())
    wrong(type, field, fmt::format("index '{}'", text));
}

std::string_view attribute(const reflection::Field &from, const char *name) {
  const auto *found = from.attributes() ? from.attributes()->LookupByKey(name) : nullptr;
  return found && found->value() ? found->value()->string_view() : std::string_view();
}

void readDeclaration(const reflection::Schema &schema, const ObjectType &type, const reflection::Field &from,
                     FieldType &field) {
  const std::string_view range = attribute(from, "range"), index = attribute(from, "index"),
                         text = attribute(from, "text");
  field.lines = text == "lines";
  if (!text.empty() && !(field.lines && field.element == reflection::String))
    wrong(type, field, fmt::format("text '{}'", text));
  if (!field.isNumber()) {
    if (!range.empty() || !index.empty())
      wrong(type, field, "a range or an index that is not a number");
    return;
  }
  std::tie(field.low, field.high) = typeRange(type, field);
  const bool known = from.type()->index() >= 0 || field.element == reflection::Bool;
  if (int{known} + !range.empty() + !index.empty() != 1)
    wrong(type, field, "a number needs one declaration of its values");
  if (!range.empty())
    return readRange(type, field, range);
  if (!index.empty())
    return readIndex(type, field, index);
  field.declared = "0 or 1";
  if (field.element == reflection::Bool)
    return;
  const reflection::Enum &kinds = *schema.enums()->Get(static_cast<uint32_t>(from.type()->index()));
  field.low = kinds.values()->Get(0)->value(), field.high = kinds.values()->Get(kinds.values()->size() - 1)->value();
  field.declared = fmt::format("in {}..{} ({})", field.low, field.high, shortName(kinds.name()->string_view()));
}

class Reader {
public:
  Reader() : schema(*reflection::GetSchema(plan::PlanBinarySchema::data())), types(schema.objects()->size()) {
    for (uint32_t i = 0; i < types.size(); ++i)
      readObject(*schema.objects()->Get(i), types[i]);
    for (uint32_t i = 0; i < types.size(); ++i)
      if (schema.objects()->Get(i) == schema.root_table() ||
          schema.objects()->Get(i)->name()->string_view() == schema.root_table()->name()->string_view())
        root = &types[i];
  }
  const ObjectType *root = nullptr;

private:
  void readObject(const reflection::Object &from, ObjectType &type) {
    type.name = shortName(from.name()->string_view());
    type.isStruct = from.is_struct();
    type.bytes = static_cast<uint32_t>(from.bytesize());
    type.align = static_cast<uint32_t>(from.minalign());
    type.fields.resize(from.fields()->size()); // which are sorted by name
    for (const reflection::Field *field : *from.fields())
      readField(type, *field, type.fields.at(field->id()));
  }

  void readField(const ObjectType &type, const reflection::Field &from, FieldType &field) {
    const reflection::Type &kind = *from.type();
    field.name = from.name()->str();
    field.base = kind.base_type();
    field.element = field.base == reflection::Vector ? kind.element() : field.base;
    field.offset = from.offset();
    field.defaultInteger = from.default_integer();
    field.defaultReal = from.default_real();
    field.elementBytes = kind.element_size();
    if (field.element == reflection::Obj) {
      field.object = &types.at(static_cast<size_t>(kind.index()));
      if (const auto *object = schema.objects()->Get(static_cast<uint32_t>(kind.index())); object->is_struct())
        field.elementBytes = static_cast<uint32_t>(object->bytesize());
    }
    if (field.element == reflection::Union)
      for (const reflection::EnumVal *value : *schema.enums()->Get(static_cast<uint32_t>(kind.index()))->values())
        field.variants.push_back(value->union_type()->base_type() == reflection::Obj
                                     ? &types.at(static_cast<size_t>(value->union_type()->index()))
                                     : nullptr);
    readDeclaration(schema, type, from, field);
  }

  const reflection::Schema &schema;
  std::vector<ObjectType> types;
};

} // namespace

const ObjectType &planType() {
  static const Reader reader;
  return *reader.root;
}

} // namespace cleave::check
