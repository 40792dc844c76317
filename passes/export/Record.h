// Adds the record of a search, and alternatives, to a plan that was compiled before they were known. No MLIR in this
// header.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes {

/// A plan that differs from another in one decision, as predicted; see plan.fbs.
struct Alternative {
  std::string decision, value;
  double step = 0; ///< seconds; 0: it does not fit the memory
  double busy = 0, communication = 0, idle = 0;
  uint64_t peakBytes = 0, capacity = 0;
};

/// The sealed plan file that the compiler writes for the same model and options with this cluster (TOML), with this
/// record (null: that of the plan), and with alternatives in place of its own.
std::vector<uint8_t> withRecord(const plan::Plan &plan, const std::string &cluster, const plan::SearchT *record,
                                const std::vector<Alternative> &alternatives);

} // namespace cleave::passes
