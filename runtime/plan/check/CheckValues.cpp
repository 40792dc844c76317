// Follows values by number through each segment: a step must find in a slot the value that the compiler's graph assigns
// to it, and a segment must leave the values that later segments expect. The numbers come from the graph; the order of
// steps and their slots come from the plan. A missing, repeated, moved or misdirected step is therefore found.
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Coverage.h"
#include "runtime/plan/check/Defects.h"

#include <map>
#include <set>

namespace cleave::check {

namespace {

class SegmentValues {
public:
  SegmentValues(const plan::Plan &plan, uint32_t p, uint32_t s, Defects &defects)
      : plan(plan), program(*plan.programs()->Get(p)), segment(*program.segments()->Get(s)), p(p), s(s),
        defects(defects) {}

  void run(const std::set<uint32_t> &left) {
    for (uint32_t i = 0; i < length(segment.steps()) && !defects.full(); ++i)
      follow(i, left);
    checkLeaves();
    checkCopies();
  }

private:
  uint32_t held(uint32_t slot) const {
    const auto found = holds.find(slot);
    return found == holds.end() ? slot : found->second;
  }

  void follow(uint32_t i, const std::set<uint32_t> &left) {
    Rule rule(defects, "V1");
    const plan::Step &step = *segment.steps()->Get(i);
    uint32_t at = 0;
    forEachAccess(
        step, program,
        [&](const Access &access) {
          if (at < length(step.values()))
            follow(i, access, step.values()->Get(at), left);
          ++at;
          if (access.kind != Access::Write || program.slots()->Get(access.slot)->space() != plan::Space::Persistent)
            return;
          written[access.slot].add(access);
          if (access.bytes && step.op_as_Copy())
            copied.insert(access.slot);
        },
        &plan);
    if (at != length(step.values()))
      defects.add("{}: it has {} operands and results, found {} values of them", placeOf(p, program, s, i), at,
                  length(step.values()));
  }

  void follow(uint32_t i, const Access &access, uint32_t value, const std::set<uint32_t> &left) {
    if (access.kind == Access::Write) {
      if (value < firstMade || !made.insert(value).second)
        defects.add("{}: it produces {} in slot {}, which was already produced", placeOf(p, program, s, i), name(value),
                    access.slot);
      holds[access.slot] = value;
      return;
    }
    if (held(access.slot) != value)
      defects.add("{}: it reads {} in slot {}, which holds {}", placeOf(p, program, s, i), name(value), access.slot,
                  name(held(access.slot)));
    else if (value < firstMade && program.slots()->Get(value)->space() == plan::Space::Placed && !left.count(value))
      defects.add("{}: it reads {}, which no segment leaves there", placeOf(p, program, s, i), name(value));
  }

  void checkLeaves() {
    Rule rule(defects, "V2");
    std::set<uint32_t> listed;
    for (uint32_t i = 0; i < length(segment.leaves()); ++i) {
      const plan::SlotValue &leaves = *segment.leaves()->Get(i);
      if (!listed.insert(leaves.slot()).second)
        defects.add("{}: it leaves a value in slot {}, which is already listed", place(), leaves.slot());
      else if (held(leaves.slot()) != leaves.value())
        defects.add("{}: it must leave {} in slot {}, which holds {}", place(), name(leaves.value()), leaves.slot(),
                    name(held(leaves.slot())));
    }
    for (const auto &[slot, value] : holds)
      if (program.slots()->Get(slot)->space() == plan::Space::Persistent && !listed.count(slot))
        defects.add("{}: it leaves {} in slot {}, which it does not list", place(), name(value), slot);
  }

  /// Copies into a persistent tensor, together with other writes, must cover all of it.
  void checkCopies() {
    Rule rule(defects, "V2");
    for (uint32_t slot : copied) {
      const uint64_t bytes = valueBytes(*program.slots()->Get(slot));
      if (const auto missing = written[slot].missing({Access::Read, slot, 0, bytes}, 0, bytes))
        defects.add("{}: it copies into parts of slot {}, but no step writes byte {}", place(), slot, *missing);
    }
  }

  static std::string name(uint32_t value) {
    return value < firstMade ? fmt::format("what slot {} held before", value)
                             : fmt::format("value {}", value - firstMade);
  }
  std::string place() const { return fmt::format("program {}, segment {} ({})", p, s, text(segment.name())); }

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Segment &segment;
  uint32_t p, s;
  Defects &defects;
  std::map<uint32_t, uint32_t> holds;   ///< per slot: the value that a step wrote
  std::set<uint32_t> made;              ///< values
  std::set<uint32_t> copied;            ///< persistent slots written by copies
  std::map<uint32_t, Coverage> written; ///< per persistent slot
};

} // namespace

void checkValues(const plan::Plan &plan, Defects &defects) {
  for (uint32_t p = 0; p < length(plan.programs()) && !defects.full(); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    std::set<uint32_t> left;
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      for (uint32_t i = 0; i < length(program.segments()->Get(s)->leaves()); ++i)
        left.insert(program.segments()->Get(s)->leaves()->Get(i)->slot());
    for (uint32_t s = 0; s < length(program.segments()) && !defects.full(); ++s)
      SegmentValues(plan, p, s, defects).run(left);
  }
}

} // namespace cleave::check
