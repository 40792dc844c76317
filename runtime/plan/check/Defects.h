// The parts of the plan checker and their shared helpers. Check.h lists what is checked.
#pragma once
#include "runtime/base/Printable.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/steps/Steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace cleave::check {

/// Collects defects up to a limit.
class Defects {
public:
  explicit Defects(size_t most) : most(most) {}
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    ++found;
    if (errors.size() >= most)
      return;
    std::string text =
        printable(fmt::format(format, std::forward<Args>(args)...), false) + fmt::format(" (rule {})", rule);
    if (std::find(errors.begin(), errors.end(), text) == errors.end()) // ranks share programs, and so their defects
      errors.push_back(std::move(text));
  }
  bool full() const { return errors.size() >= most; }
  size_t count() const { return found; }
  std::vector<std::string> take() { return std::move(errors); }

private:
  friend class Rule;
  const char *rule = "T1";
  size_t most, found = 0;
  std::vector<std::string> errors;
};

/// Sets the rule of docs/plan.md that reported defects violate, for the lifetime of this object.
class Rule {
public:
  Rule(Defects &defects, const char *number) : defects(defects), before(defects.rule) { defects.rule = number; }
  ~Rule() { defects.rule = before; }
  Rule(const Rule &) = delete;
  Rule &operator=(const Rule &) = delete;

private:
  Defects &defects;
  const char *before;
};

/// First number of values produced by a segment (Step.values).
constexpr uint32_t firstMade = uint32_t{1} << 31;

/// Bytes of an optional flatbuffer vector.
inline std::span<const uint8_t> bytesOf(const flatbuffers::Vector<uint8_t> *vector) {
  return vector ? std::span(vector->data(), vector->size()) : std::span<const uint8_t>();
}

/// "program 0, segment 3 (forward), step 5 (Matmul)"
std::string placeOf(uint32_t program, const plan::Program &info, uint32_t segment, uint32_t step);

/// Checks that every number has a value that plan.fbs declares for it, and that texts have no control characters. All
/// other checks require that this finds nothing.
void checkDeclared(const plan::Plan &plan, Defects &defects);
/// Checks mesh, tensors, groups and each rank's tables. All other checks require that this finds nothing.
void checkTables(const plan::Plan &plan, Defects &defects);
/// Checks kernel declarations, and that the code contains the kernels. Part of checkTables.
void checkKernels(const plan::Plan &plan, Defects &defects);
/// Checks the plan's training and data. Part of the tables.
void checkChoices(const plan::Plan &plan, Defects &defects);
/// Checks that every input slot of a program is bound to one field of the data with the same type and elements per
/// sample. Slots must be valid.
void checkFields(const plan::Plan &plan, uint32_t program, Defects &defects);
/// Compares the ranks of each program with the first of them, which checkStructure follows, in everything the program
/// relies on: lengths of tables, sizes of groups, shares, local shapes.
void checkRanks(const plan::Plan &plan, Defects &defects);
/// The mesh axes along which the members of each group differ, one bit each.
std::vector<uint32_t> groupAxes(const plan::Plan &plan);
/// Checks everything that later parts rely on: indices, sizes, names. They require that this finds nothing.
void checkStructure(const plan::Plan &plan, Defects &defects);
/// Checks that every step reads, and every segment leaves, the values that they declare.
void checkValues(const plan::Plan &plan, Defects &defects);
/// Checks values in memory along each program's actions.
void checkMemory(const plan::Plan &plan, const CheckOptions &options, Defects &defects);
/// Checks partial values.
void checkPartials(const plan::Plan &plan, Defects &defects);
/// Checks the schedule, the sum of every gradient, and its update.
void checkTraining(const plan::Plan &plan, Defects &defects);
/// Checks GPU plans: streams, waits, order of messages, workspace.
void checkStreams(const plan::Plan &plan, Defects &defects);
/// Checks all ranks together: collectives and messages.
void checkCommunication(const plan::Plan &plan, Defects &defects);

} // namespace cleave::check
