// Adds the record of a search to a plan that was compiled before the search ended. No MLIR in this header.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <vector>

namespace cleave::passes {

/// The sealed plan file that the compiler writes for the same model and options with this record.
std::vector<uint8_t> withRecord(const plan::Plan &plan, const plan::SearchT &record);

} // namespace cleave::passes
