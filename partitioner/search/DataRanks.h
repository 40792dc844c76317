// The plan of two ranks along axis dp as one of more: every rank of the axis has the same layers and as many rows, so
// that a search compiles one plan for all sizes of the axis.
#pragma once
#include "runtime/plan/PlanFile.h"

#include <memory>

namespace cleave::partitioner {

/// The ranks and groups of `plan`, which has one stage, with `ranks` ranks along its axis dp: a plan without programs
/// (SimulateOptions::table). The last rank of the axis runs the program of the last one of `plan`, the others that of
/// the first. Collectives move the same bytes among more members; slots and steps keep their sizes, also where ZeRO
/// divides them among the ranks.
std::shared_ptr<const PlanFile> withDataRanks(const plan::Plan &plan, uint32_t ranks);

} // namespace cleave::partitioner
