// The variables that launchers set.
#include "runtime/session/Launcher.h"
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sched.h>
#include <unistd.h>

namespace cleave {

/// An integer environment variable; `fallback` if not set.
static long environmentNumber(const char *name, long fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return fallback;
  char *end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end ? fallback : value;
}

/// torchrun's environment, unless MPI started the process.
static std::optional<TorchEnvironment> torchRank() { return startedByMpi() ? std::nullopt : torchEnvironment(); }

bool ranksAreProcesses() { return startedByMpi() || torchRank(); }

unsigned launchedRank() {
  if (!startedByMpi())
    try {
      const auto torch = torchRank();
      return torch ? torch->rank : 0;
    } catch (const Error &) { // reported by ranksAreProcesses
      return 0;
    }
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (std::getenv(name))
      return unsigned(std::max(0l, environmentNumber(name, 0)));
  return 0;
}

long launchedRanks() {
  if (!startedByMpi()) {
    const auto torch = torchRank();
    return torch ? static_cast<long>(torch->size) : 1;
  }
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"})
    if (std::getenv(name))
      return std::max(0l, environmentNumber(name, 0));
  return 0;
}

/// Number of ranks on this host from the launcher; `ranks` if unknown.
static long localRanks(unsigned ranks) {
  if (const auto torch = torchRank())
    return torch->localSize ? torch->localSize : torch->size;
  return environmentNumber("OMPI_COMM_WORLD_LOCAL_SIZE", environmentNumber("SLURM_NTASKS_PER_NODE", long(ranks)));
}

unsigned defaultThreads(unsigned ranks) {
  cpu_set_t set;
  const long allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (!ranksAreProcesses())
    return unsigned(std::max(1l, allowed / long(std::max(1u, ranks))));
  // A launcher may already have bound this process to its share of the cores, so both limits apply.
  const long share = sysconf(_SC_NPROCESSORS_ONLN) / std::max(1l, localRanks(ranks));
  return unsigned(std::max(1l, std::min(allowed, share)));
}

} // namespace cleave
