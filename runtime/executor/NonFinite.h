// Where a NaN or an infinity comes from (--find-nan): every step's operands are looked at before it runs and its
// results after. A step made a NaN if it wrote one and read none; it made an infinity if it wrote one and all that it
// read was finite. What an input field of the data holds counts as made by the data. Slow: everything is read twice
// more.
#pragma once
#include "runtime/executor/Resolved.h"
#include "runtime/plan/CheckParts.h"

#include <compare>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// A step that made the first NaN or infinity, and when. Ordered by when it ran, also among the ranks of a plan.
struct NonFinite {
  int64_t step = 0;       ///< training step, 1 for the first
  int64_t phase = 0;      ///< 0 forward, 1 backward, 2 what follows
  int64_t microbatch = 0; ///< after the phase: of one microbatch a stage runs after another
  int64_t stage = 0;      ///< backward: negative
  int64_t sequence = 0;   ///< of the rank's iteration
  std::string what;       ///< "fc1 (mlp.cpp:6:57, Matmul)"
  auto operator<=>(const NonFinite &) const = default;
};

class NonFiniteSearch {
public:
  NonFiniteSearch(const plan::Plan &plan, const plan::Program &program) : plan(plan), program(program) {}

  /// Forgets what the last iteration found, unless it stayed in a parameter, a buffer or a state.
  void begin(int64_t step);
  /// Around the run of step `index` of an action with these slots.
  void before(const ResolvedAction &action, uint32_t index, SlotTable table);
  void after(const ResolvedAction &action, uint32_t index, SlotTable table);

  std::optional<NonFinite> nan, infinity; ///< the first step that made one

private:
  struct Found {
    bool nan = false, infinity = false;
  };
  Found look(const check::Access &access, const ResolvedAction &action, SlotTable table) const;
  void note(std::optional<NonFinite> &first, const ResolvedAction &action, const std::string &what);
  bool outlivesIteration(uint32_t slot) const;
  std::string describe(const plan::Step &step) const;

  const plan::Plan &plan;
  const plan::Program &program;
  int64_t trainingStep = 0, sequence = 0;
  Found read; ///< by the step at hand
  bool lasting = false;
};

} // namespace cleave
