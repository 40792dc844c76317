// The two kinds of Executor: makeExecutor (Executor.h) chooses between them. The CUDA one lies in runtime/cuda.
#pragma once
#include "runtime/executor/Executor.h"

namespace cleave {

/// Devices "cpu" and "reference".
std::unique_ptr<Executor> makeHostExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, World &world,
                                           const ExecutorOptions &options);
/// Device "cuda"; a user error where this build has none or the machine lacks a GPU.
std::unique_ptr<Executor> makeCudaExecutor(std::shared_ptr<const PlanFile> file, unsigned rank, World &world,
                                           const ExecutorOptions &options);

/// Throws what makeCudaExecutor would where there is no device.
void requireCuda();

} // namespace cleave
