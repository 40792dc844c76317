// Every field of a plan, with the values that plan.fbs declares for it. The declarations are read from the schema's
// binary form, so a new field needs only its declaration; a number without one is an error of the first plan that is
// walked.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::check {

using Wide = __int128; ///< holds the value of every integer field

/// The lists and numbers that bound an index.
enum class Bound : uint8_t {
  None,
  Axes,
  Tensors,
  Kernels,
  Groups,
  Programs,
  Ranks,
  Stages,
  Strings,
  Microbatches,
  PipelineRanks, ///< the size of axis pp
  Slots,
  Segments,
  Layouts,
  RankGroups, ///< of every rank that runs the program, as the two that follow
  RankPeers,
  RankScalars,
  Streams,
  Actions,      ///< of the list that is walked
  Steps,        ///< of the action's segment
  StepsOfOther, ///< of the segment of the action that is waited for
  Count
};

struct ObjectType;

/// A field of a table or struct. Of a list, the declaration is that of each entry.
struct FieldType {
  std::string name;
  reflection::BaseType base = reflection::None;    ///< Vector for a list
  reflection::BaseType element = reflection::None; ///< type of each value: `base`, or that of a list's entries
  const ObjectType *object = nullptr;              ///< of tables and structs
  std::vector<const ObjectType *> variants{};      ///< of a union, by the value of its type field; null: none
  uint16_t offset = 0;                             ///< in the vtable; in a struct, in bytes
  uint32_t elementBytes = 0;                       ///< of the entries of a list
  int64_t defaultInteger = 0;
  double defaultReal = 0;

  Wide low = 0, high = 0; ///< allowed integers; with `bound`, `high` is not used
  double lowReal = 0, highReal = 0;
  Bound bound = Bound::None;
  std::string declared{}; ///< the declaration in words
  bool any = false;       ///< every value of the type is allowed
  bool shape = false;     ///< a list whose product is a size
  bool lines = false;     ///< a text that may have newlines and tabs
  bool isNumber() const { return reflection::UType <= element && element <= reflection::Double; }
  bool isReal() const { return element == reflection::Float || element == reflection::Double; }
};

struct ObjectType {
  std::string name; ///< without namespace
  bool isStruct = false;
  uint32_t bytes = 0, align = 1; ///< of a struct
  std::vector<FieldType> fields{};
};

/// The type of the root, Plan.
const ObjectType &planType();

/// A number of a plan, and the values that are allowed for it in this plan.
struct Number {
  const FieldType &field;
  const uint8_t *at; ///< null: it has its default
  Wide value = 0, low = 0, high = 0;
  double real = 0; ///< of float fields, whose bounds are those of the field
  bool allowed() const;
};

class FieldWalk;

/// What is to be done with each field. `at` tells its place.
class FieldVisitor {
public:
  virtual ~FieldVisitor() = default;
  virtual void number(const FieldWalk &at, const Number &number);
  virtual void text(const FieldWalk &at, const FieldType &field, std::string_view text);
  /// A list that is there, before its entries. `data`: its first entry. Returns whether the entries are to be visited.
  virtual bool list(const FieldWalk &at, const FieldType &field, const uint8_t *data, uint32_t entries);
};

/// Visits every field of a plan whose bytes flatbuffers has verified; nothing else about it need hold.
class FieldWalk {
public:
  FieldWalk(const plan::Plan &plan, FieldVisitor &visitor);
  void run();
  /// The place of the field that is visited, for example "programs[0].segments[2].steps[1].Matmul.bias".
  std::string path() const;

private:
  struct Place {
    const FieldType *field;
    int64_t entry = -1;
    const ObjectType *variant = nullptr;
  };
  void table(const ObjectType &type, const flatbuffers::Table &table);
  void field(const FieldType &field, const flatbuffers::Table &table);
  void list(const FieldType &field, const uint8_t *vector);
  void structure(const ObjectType &type, const uint8_t *at);
  void number(const FieldType &field, const uint8_t *at);
  void enter(const ObjectType &type, const void *object);
  void enterProgram(const plan::Program &program);
  Wide &bound(Bound which) { return bounds[static_cast<size_t>(which)]; }
  uint32_t stepsOf(Wide action) const;

  const plan::Plan &plan;
  FieldVisitor &visitor;
  std::vector<Place> places;
  std::array<Wide, static_cast<size_t>(Bound::Count)> bounds{}; ///< indices must be less
  const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions = nullptr;
  const plan::Program *program = nullptr;
};

} // namespace cleave::check
