// Finds the origin of a NaN or an infinity (--find-nan) by examining every step's operands before it runs and its
// results after. A step produced a NaN if it wrote one and read none; it produced an infinity if it wrote one and read
// only finite values. Non-finite values in an input field are attributed to the data. Slow: reads everything two more
// times.
#pragma once
#include "runtime/executor/Resolved.h"
#include "runtime/plan/check/Defects.h"

#include <compare>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The step that produced the first NaN or infinity, and when. Ordered by time, also among the ranks of a plan.
struct NonFinite {
  int64_t step = 0;       ///< training step, 1 for the first
  int64_t phase = 0;      ///< 0 forward, 1 backward, 2 later
  int64_t microbatch = 0; ///< compared after the phase, because a stage runs microbatches one after another
  int64_t stage = 0;      ///< negative for backward
  int64_t sequence = 0;   ///< position in the rank's iteration
  std::string what;       ///< "fc1 (mlp.cpp:6:57, Matmul)"
  auto operator<=>(const NonFinite &) const = default;
};

class NonFiniteSearch {
public:
  NonFiniteSearch(const plan::Plan &plan, const plan::Program &program) : plan(plan), program(program) {}

  /// Clears the findings of the last iteration, except values that remain in a parameter, a buffer or a state.
  void begin(int64_t step);
  /// Call before and after step `index` of an action with these slots.
  void before(const ResolvedAction &action, uint32_t index, SlotTable table);
  void after(const ResolvedAction &action, uint32_t index, SlotTable table);

  std::optional<NonFinite> nan, infinity; ///< the first step that produced one

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
  Found read; ///< non-finite values read by the current step
  bool lasting = false;
};

} // namespace cleave
