// Alters any field or list of a plan's bytes, found by the plan's schema (runtime/plan/Fields.h).
#pragma once
#include "runtime/plan/Fields.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave::test {

/// A number in the bytes of a plan.
struct PlanNumber {
  const check::FieldType *field;
  uint8_t *at;
  check::Wide value = 0; ///< of integer fields
  check::Wide low, high; ///< allowed in this plan; of float fields, use those of the field
  std::string path;

  void set(check::Wide value) const;
  void setReal(double value) const;
  /// Values at the ends of its range and beside them, and at those of its type. Of float fields, too.
  static constexpr size_t edges = 10;
  void setEdge(size_t which) const;
};

/// All numbers of a flatbuffer in which every field is written. `paths`: with their places.
std::vector<PlanNumber> numbersOf(std::vector<uint8_t> &flatbuffer, bool paths = false);

/// How a list, text or table is altered.
enum class Change { LeaveOut, Drop, Repeat, Swap, Count };
struct Alteration {
  size_t which = 0; ///< counted over all lists, texts and tables
  Change change = Change::LeaveOut;
  size_t from = 0, to = 0; ///< entries
};

/// A copy in which every field is written; `altered` is applied to it. Sets `count` to the number of lists, texts and
/// tables.
std::vector<uint8_t> copyOf(const std::vector<uint8_t> &flatbuffer, std::optional<Alteration> altered = {},
                            size_t *count = nullptr);

} // namespace cleave::test
