// The two kinds of Executor; makeExecutor (Executor.h) chooses between them. The CUDA executor is in runtime/cuda.
#pragma once
#include "runtime/executor/Executor.h"

namespace cleave {

/// Devices "cpu" and "reference".
std::unique_ptr<Executor> makeHostExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
                                           const ExecutorOptions &options);
/// Device "cuda". Throws a user error if this build does not support CUDA or the machine has no GPU.
std::unique_ptr<Executor> makeCudaExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
                                           const ExecutorOptions &options);

/// Throws the error of makeCudaExecutor if there is no device.
void requireCuda();

} // namespace cleave
