// What a rank on a GPU finds out before it begins: which device, which code.
#pragma once
#include "runtime/cuda/driver/Context.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/PlanFile.h"

namespace cleave::cuda {

/// The device of a rank: options.localRank, else its number among the processes of its machine as the launcher says
/// (LOCAL_RANK, ...), else (ranks are threads) its rank. More ranks than devices share them where NCCL_HOSTID says that
/// this is meant: NCCL takes them for ranks on different machines then.
int deviceOf(const ExecutorOptions &options, unsigned rank);

/// The plan's kernels: its cubin where it was made for this device, its PTX for later ones. Environment error naming
/// both where neither runs; empty where the plan carries no code.
Module loadCode(const PlanFile &file, const Context &context);

/// "fp32", "tf32", "bf16", "fp16" as the plan's training choices say; "fp32" where they do not.
std::string precisionOf(const plan::Plan &plan);

} // namespace cleave::cuda
