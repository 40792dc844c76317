// Plan export: local programs and schedules in, the bytes of a plan file out.
//
// Phases, each a file: Tidy and Select (library calls with their operands' strides, biases and accumulation), fuse
// (everything else becomes generated kernels), Slots and Steps* (the program of every class of equal ranks), Schedule
// and Timeline (actions, waits, lifetimes, layouts), Tables (what programs share).
#pragma once
#include "partitioner/apply/Applied.h"
#include "passes/CompileOptions.h"

#include <cstdint>
#include <vector>

namespace cleave::passes {

/// Exports an applied strategy. Rewrites `applied.module` on the way. Returns the sealed plan file. Throws userError
/// where an op has no library step and no kernel, naming the op and the user's source line.
std::vector<uint8_t> exportPlan(partitioner::Applied &applied, const CompileOptions &options);

} // namespace cleave::passes
