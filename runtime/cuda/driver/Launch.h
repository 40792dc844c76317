// Choices of a rank on a GPU at start: its device and its code.
#pragma once
#include "runtime/cuda/driver/Context.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/PlanFile.h"

namespace cleave::cuda {

/// The device of a rank: options.localRank, else its index among the processes of its machine as set by the launcher
/// (LOCAL_RANK, ...), else (ranks are threads) its rank. If there are more ranks than devices, they share devices only
/// if NCCL_HOSTID is set, which makes NCCL treat them as ranks on different machines.
int deviceOf(const ExecutorOptions &options, unsigned rank);

/// The plan's kernels: its cubin if it was compiled for this device, its PTX for newer devices. Throws an environment
/// error that names both if neither works; empty if the plan has no code.
Module loadCode(const PlanFile &file, const Context &context);

} // namespace cleave::cuda
