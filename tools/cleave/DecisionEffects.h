// The decisions in which two plans differ, and what each alone costs.
#pragma once
#include "runtime/plan/summary/PlanSummary.h"
#include "tools/cleave/RunProgram.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cleave::tool {

/// Of a plan: predicted seconds of a step (none: without a cluster), and bytes.
struct PlanCosts {
  std::optional<double> step;
  uint64_t peakBytes = 0;    ///< of the rank that needs most
  uint64_t messageBytes = 0; ///< of an iteration, as `cleave show` counts them
  uint64_t collectiveBytes = 0;
};
PlanCosts costsOf(const PlanSummary &summary);

struct DecisionChange {
  std::string decision, path; ///< path: of layers or a module; empty: the whole step
  std::string from, to;
  /// Of PROGRAM plan --like: the first plan with this decision alone. `files`: options whose values are files, with
  /// their text.
  std::vector<std::string> options;
  std::vector<std::pair<std::string, std::string>> files;
  std::vector<std::string> brings; ///< decisions that have to change with it
  std::string why;                 ///< it cannot be had alone
  std::optional<PlanCosts> alone;
};

/// Compares the plans' strategies and requests: the split, precision, layout, batch, optimizer, options of the model
/// and cluster. Without effects.
std::vector<DecisionChange> decisionChanges(const PlanFile &a, const PlanFile &b);

/// Sets what each decision alone makes of the first plan, or why it cannot be had alone. Plans anew, one after another.
void addEffects(std::vector<DecisionChange> &changes, const PlanFile &a, const Replanner &planner);

} // namespace cleave::tool
