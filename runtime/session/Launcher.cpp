// The variables that launchers set.
#include "runtime/session/Launcher.h"
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <sched.h>
#include <string_view>
#include <unistd.h>

namespace cleave {

/// A variable that is set and not empty.
static std::optional<std::string_view> variable(const char *name) {
  const char *text = std::getenv(name);
  return text && *text ? std::optional<std::string_view>(text) : std::nullopt;
}

/// The number at the beginning of a text, which it removes; 0 without one.
static long takeNumber(std::string_view &text) {
  long value = 0;
  text.remove_prefix(size_t(std::from_chars(text.data(), text.data() + text.size(), value).ptr - text.data()));
  return std::max(0l, value);
}

/// The number that a variable holds; 0 if it is not set.
static long numberIn(const char *name) {
  std::string_view text = variable(name).value_or("");
  return takeNumber(text);
}

/// The number for host `host` in Slurm's list: "3,1", or "4(x2),1" for 4, 4, 1. 0 if it has none.
static long onSlurmHost(std::string_view list, long host) {
  while (!list.empty()) {
    const long tasks = takeNumber(list);
    long hosts = 1;
    if (list.starts_with("(x")) {
      list.remove_prefix(2);
      hosts = takeNumber(list);
    }
    if (host < hosts)
      return tasks;
    host -= hosts;
    list.remove_prefix(std::min(list.size(), list.find_first_of("0123456789")));
  }
  return 0;
}

/// The tasks of the Slurm step that this process belongs to: of `srun`, not of a batch script, whose variables are
/// those of the job. A shell that `salloc` opens is a step of one task, too. nullopt: no step.
static std::optional<Launch> slurmStep() {
  if (!variable("SLURM_STEP_ID") || !variable("SLURM_STEP_NUM_TASKS"))
    return {};
  return Launch{.rank = unsigned(numberIn("SLURM_PROCID")),
                .ranks = numberIn("SLURM_STEP_NUM_TASKS"),
                .here = onSlurmHost(variable("SLURM_STEP_TASKS_PER_NODE").value_or(""), numberIn("SLURM_NODEID"))};
}

/// What `srun` does not do for tasks that have to find each other, and what the user can do.
static Error unconnected(long tasks, const std::string &why) {
  return userError(fmt::format(
      "srun started {} tasks of this step {}: each would run the whole job. Start the ranks with srun --mpi=pmix or, "
      "inside the allocation, with mpirun; or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every task, as "
      "torchrun does. WORLD_SIZE=1 makes each task a job of its own",
      tasks, why));
}

/// MPI's ranks that something else than mpirun started: srun, by PMI-1, PMI-2 or PMIx. Without several ranks: nullopt.
static std::optional<Launch> pmiRanks(const std::optional<Launch> &step) {
  const bool older = variable("PMI_SIZE").has_value(), newer = variable("PMIX_RANK").has_value();
  if (!older && !newer)
    return {};
  Launch found{.are = Launch::Ranks::Mpi,
               .rank = unsigned(numberIn(newer ? "PMIX_RANK" : "PMI_RANK")),
               .ranks = older  ? numberIn("PMI_SIZE")
                        : step ? step->ranks
                               : 0,
               .here = step ? step->here : numberIn("MPI_LOCALNRANKS")};
  if (found.ranks == 1)
    return {};
  if (!newer && !mpiSpeaksPmi())
    throw step
        ? unconnected(found.ranks, fmt::format("with an older PMI than PMIx, which {} does not know", mpiVersion()))
        : userError(fmt::format("PMI_SIZE={}: a launcher of another MPI started the ranks; {} needs its own "
                                "mpirun, or a launcher with PMIx",
                                found.ranks, mpiVersion()));
  return found;
}

Launch launched() {
  const bool hasMpi = !mpiVersion().empty(), torchSays = variable("WORLD_SIZE").has_value();
  const long byMpirun = numberIn("OMPI_COMM_WORLD_SIZE");
  if (byMpirun > 1 && (hasMpi || !torchSays))
    return {.are = Launch::Ranks::Mpi,
            .rank = unsigned(numberIn("OMPI_COMM_WORLD_RANK")),
            .ranks = byMpirun,
            .here = numberIn("OMPI_COMM_WORLD_LOCAL_SIZE")};
  const std::optional<Launch> step = byMpirun ? std::nullopt : slurmStep(); // otherwise the step of mpirun's daemons
  if (const auto torch = torchEnvironment()) {
    const long counted = step && step->ranks == long(torch->size) ? step->here : long(torch->size);
    return {.are = Launch::Ranks::Sockets,
            .rank = torch->rank,
            .ranks = long(torch->size),
            .here = torch->localSize ? long(torch->localSize) : counted};
  }
  if (byMpirun == 1)
    return {};
  if (const auto ranks = pmiRanks(step))
    return *ranks;
  if (step && step->ranks > 1 && !torchSays) // which is WORLD_SIZE=1
    throw unconnected(step->ranks, "without PMIx, so that they do not know of each other");
  return {};
}

bool ranksAreProcesses() { return launched().are != Launch::Ranks::Threads; }

bool startedByMpi() { return launched().are == Launch::Ranks::Mpi; }

unsigned launchedRank() {
  try {
    return launched().rank;
  } catch (const Error &) { // reported by ranksAreProcesses
    return unsigned(numberIn("SLURM_PROCID"));
  }
}

long launchedRanks() { return launched().ranks; }

unsigned defaultThreads(unsigned ranks) {
  cpu_set_t set;
  const long allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const Launch started = launched();
  if (started.are == Launch::Ranks::Threads)
    return unsigned(std::max(1l, allowed / long(std::max(1u, ranks))));
  // A launcher may already have bound this process to its share of the cores, so both limits apply.
  const long share = sysconf(_SC_NPROCESSORS_ONLN) / std::max(1l, started.here ? started.here : long(ranks));
  return unsigned(std::max(1l, std::min(allowed, share)));
}

} // namespace cleave
