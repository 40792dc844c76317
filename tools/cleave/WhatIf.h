// Plans that differ from a plan: those that it stores, and those that its program makes for a question.
#pragma once
#include "partitioner/simulate/Simulate.h"
#include "tools/cleave/RunProgram.h"

#include <optional>
#include <string>
#include <vector>

namespace cleave::tool {

/// Another plan: a decision and its other value, or a change that was asked for.
struct OtherPlan {
  std::string decision, value;
  double step = 0;                      ///< seconds of an iteration; 0: it does not fit the memory
  uint64_t peakBytes = 0, capacity = 0; ///< of the rank that comes closest to its device's memory
  std::string reason;                   ///< why it was not chosen
  bool matters = true;                  ///< whether the step differs by more than 1%
};

/// The alternatives that `stored` has to a plan with this simulation; stored by PROGRAM plan --alternatives.
std::vector<OtherPlan> otherPlans(const PlanFile &stored, const partitioner::Simulation &simulation);

/// A change of the request or of the hardware.
struct WhatIf {
  std::string words;                                ///< "mesh dp=8", "network 400"
  std::vector<std::string> options = {};            ///< of PROGRAM plan
  std::optional<partitioner::Cluster> cluster = {}; ///< changed
};
/// Throws userError that names the words that are known, or the value.
WhatIf parseWhatIf(const std::string &words, const partitioner::Cluster &cluster);

struct Answer {
  std::shared_ptr<const PlanFile> plan; ///< null: there is none
  std::string problem;                  ///< then: why
  bool searched = false; ///< what the request had fixed did not fit, so all but the change was found anew
};
/// Plans anew. Where the plan does not fit the memory, everything but the change is found anew; the answer has no plan
/// if nothing fits. Throws userError if the change cannot be.
Answer answer(const Replanner &planner, const WhatIf &change);

} // namespace cleave::tool
