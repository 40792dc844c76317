// Selects device and code.
#include "runtime/cuda/driver/Launch.h"

#include "runtime/base/Error.h"
#include "runtime/executor/Backends.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <cstdlib>

namespace cleave {

void requireCuda() { cuda::driver(); }

std::optional<CudaDevices> cudaDevices() {
  try {
    const cuda::Context first(0);
    int count = 0;
    cuda::check(cuda::driver().deviceGetCount(&count), "cuDeviceGetCount");
    const int capability = first.capability();
    return CudaDevices{.name = first.name(),
                       .target = capability >= 100  ? Target::Sm100
                                 : capability >= 90 ? Target::Sm90
                                                    : Target::Sm80,
                       .bytes = static_cast<double>(first.totalBytes()),
                       .count = count};
  } catch (const Error &) {
    return std::nullopt;
  }
}

} // namespace cleave

namespace cleave::cuda {

int deviceOf(const ExecutorOptions &options, unsigned rank) {
  int local = options.localRank;
  for (const char *name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char *value = local < 0 ? std::getenv(name) : nullptr; value && *value)
      local = std::atoi(value);
  if (local < 0)
    local = static_cast<int>(rank);
  int devices = 0;
  check(driver().deviceGetCount(&devices), "cuDeviceGetCount");
  // The launcher may make only one device visible to each process.
  if (devices == 1 && std::getenv("SLURM_LOCALID") && std::getenv("CUDA_VISIBLE_DEVICES"))
    return 0;
  return local >= devices && std::getenv("NCCL_HOSTID") ? local % devices : local;
}

Module loadCode(const PlanFile &file, const Context &context) {
  const plan::Plan &plan = file.plan();
  if (!plan.code() || !plan.code()->size())
    return {};
  const std::string target = text(plan.target()), what = fmt::format("plan '{}'", file.name());
  if (!target.starts_with("sm_")) // for tests whose driver emulates a device on the CPU; a real driver rejects it
    return Module(plan.code()->data(), what + ": its code for " + target);
  const int made = std::atoi(target.c_str() + 3), here = context.capability();
  if (here / 10 == made / 10 && here >= made)
    return Module(plan.code()->data(), what + ": its code");
  if (here > made && plan.ptx() && plan.ptx()->size())
    return Module(plan.ptx()->c_str(), what + ": its PTX");
  throw environmentError(
      fmt::format("{}: its code is for {}, the device '{}' is sm_{}: make the plan with --target sm_{}", what, target,
                  context.name(), here, here / 10 * 10));
}

} // namespace cleave::cuda
