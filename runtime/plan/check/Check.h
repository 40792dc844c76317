// Checks a plan before it runs; used by the tools, the tests and the runtime.
//
// Structure: all indices are in range, views are inside their slots, layouts inside their arena, and persistent slots
// do not overlap. Rank counts and coordinates match the mesh. Groups and peers are valid. Slot shapes follow from
// tensor and sharding. Required names and sizes exist. Ranks that share a program have matching tables. Memory:
// following each program's actions, no step reads bytes of a placed slot that were never written or that another slot
// has overwritten; no step overwrites what it reads, except kernels and all-reduces in place; no slot changes while a
// message is sent from it; the arena has the stated size and fits. Meaning: all ranks are executed symbolically. All
// members of a group issue the same collectives in the same order with the same kind, type and counts; every send
// matches one receive of the same bytes; there is no deadlock. A value that is partial over mesh axes is read only by
// collectives, copies, messages and kernels, and only into values that are partial over the same axes, except those
// that a reduction removes.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

struct CheckOptions {
  uint64_t memoryBytes = 0; ///< memory of one rank; 0: unknown
  size_t maxErrors = 20;
};

/// All defects, one line each: the place, the rule, the value. Empty: the plan is valid.
std::vector<std::string> checkPlan(const plan::Plan &plan, const CheckOptions &options = {});
/// Only the checks that make reading a plan safe: tables, structure, and what ranks share. Fast. Every tool that
/// displays a plan runs this first; the texts of a plan that passes have no control characters.
std::vector<std::string> checkPlanStructure(const plan::Plan &plan, const CheckOptions &options = {});
/// Throws an environment error with the defects found by checkPlanStructure, beginning with `name`.
void checkPlanStructureOrThrow(const plan::Plan &plan, const std::string &name);
/// Throws an environment error with the defects found by checkPlan, beginning with `name`.
void checkPlanOrThrow(const plan::Plan &plan, const std::string &name, const CheckOptions &options = {});

} // namespace cleave
