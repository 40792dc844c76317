// Replaces runtime/cuda in builds without CUDA headers.
#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Report.h"
#include "runtime/executor/Backends.h"
#include "runtime/executor/Executor.h"

namespace cleave {

void requireCuda() {
  throw userError("--backend cuda: no CUDA device can be used: this build was made without the CUDA toolkit");
}

std::optional<CudaDevices> cudaDevices() { return std::nullopt; }

CudaReport examineCuda() { return {"", "this build was made without the CUDA toolkit", {}, {}}; }

std::unique_ptr<Executor> makeCudaExecutor(std::shared_ptr<const PlanFile>, unsigned, RankEndpoint &,
                                           const ExecutorOptions &) {
  requireCuda();
  return nullptr;
}

} // namespace cleave
