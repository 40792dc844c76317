// Checks a plan before anything runs it; used by the tools, the tests and the runtime.
//
// Structure: every index in range, every view inside its slot, every layout inside its arena, persistent slots apart,
// rank counts and coordinates match the mesh, groups and peers valid, slot shapes follow from tensor and sharding,
// names and sizes that others rely on are there; ranks that share a program have tables that suit it. Memory: following
// each program's actions, no step reads bytes of a placed slot that were never written, or that another slot has
// overwritten since; no step writes over what it reads, but for kernels and all-reduces in place; no slot changes while
// a message is sent from it; the arena is as large as said and fits. Meaning: all ranks are run symbolically. Every
// collective is issued by all members of its group in the same order with the same kind, type and counts; every send
// meets one receive of the same bytes; nobody waits for ever; a value that is still partial over mesh axes is read only
// by collectives, copies, messages and kernels, and only into values that are partial over the same axes, less those a
// reduction removes.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

struct CheckOptions {
  uint64_t memoryBytes = 0; ///< a rank's memory; 0: not known
  size_t maxErrors = 20;
};

/// Everything found wrong, each one line: the place, the rule, the value. Empty: the plan is good.
std::vector<std::string> checkPlan(const plan::Plan &plan, const CheckOptions &options = {});
/// The part that makes it safe to look at a plan: tables, structure, and what ranks share. Fast. Every tool that shows a
/// plan asks this first; text of a plan that passes has no control characters.
std::vector<std::string> checkPlanStructure(const plan::Plan &plan, const CheckOptions &options = {});
/// An environment error with what checkPlanStructure found, `name` first.
void checkPlanStructureOrThrow(const plan::Plan &plan, const std::string &name);
/// An environment error with what was found, `name` first.
void checkPlanOrThrow(const plan::Plan &plan, const std::string &name, const CheckOptions &options = {});

} // namespace cleave
