// Threads or processes, and how a program ends.
#include "runtime/session/Launch.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/session/Interrupt.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <mpi.h>
#include <new>
#include <sched.h>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace cleave {

/// A number in the environment; `fallback` where there is none.
static long environmentNumber(const char *name, long fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return fallback;
  char *end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end ? fallback : value;
}

bool ranksAreProcesses() {
  if (startedByMpi())
    return true;
  const long size = environmentNumber("WORLD_SIZE", 1);
  if (size > 1 && std::getenv("RANK") && std::getenv("MASTER_ADDR"))
    throw environmentError(fmt::format("ranks as processes need mpirun or srun; found torchrun's environment with "
                                       "WORLD_SIZE={} and no MPI",
                                       size));
  return false;
}

unsigned launchedRank() {
  if (!startedByMpi())
    return 0;
  for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (std::getenv(name))
      return unsigned(std::max(0l, environmentNumber(name, 0)));
  return 0;
}

unsigned defaultThreads(unsigned ranks) {
  cpu_set_t set;
  const long allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (!startedByMpi())
    return unsigned(std::max(1l, allowed / long(std::max(1u, ranks))));
  // A launcher may have bound this process to its share already, so both limits count.
  const long local = std::max(
      1l, environmentNumber("OMPI_COMM_WORLD_LOCAL_SIZE", environmentNumber("SLURM_NTASKS_PER_NODE", long(ranks))));
  const long share = sysconf(_SC_NPROCESSORS_ONLN) / local;
  return unsigned(std::max(1l, std::min(allowed, share)));
}

std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make) {
  if (!ranksAreProcesses())
    return make();
  const std::unique_ptr<World> world = makeMpiWorld(0);
  world->setTimeout(24 * 3600); // rank 0 may compile for long
  std::shared_ptr<const PlanFile> plan;
  std::vector<uint8_t> bytes;
  if (world->rank() == 0) {
    plan = make();
    bytes.assign(plan->bytes().begin(), plan->bytes().end());
  }
  world->broadcast(bytes);
  return plan ? plan : PlanFile::fromBytes(std::move(bytes), "the plan that rank 0 sent");
}

void runPlanRanks(unsigned ranks, const std::function<void(unsigned, World &)> &fn) {
  if (ranksAreProcesses()) {
    std::unique_ptr<World> world = makeMpiWorld(ranks);
    try {
      fn(world->rank(), *world);
      world->barrier(); // nobody leaves while another may still fail
    } catch (...) {
      (void)world.release(); // taking it down needs the others; the process is about to end (guardedMain)
      throw;
    }
    return;
  }
  LocalWorld world(ranks);
  runRanks(world, [&](unsigned rank) { fn(rank, world[rank]); });
}

/// Prints the message and ends: through MPI_Abort where other processes may be waiting for this one.
static int fail(Status status, const std::string &message) {
  const bool processes = startedByMpi();
  int begun = 0, ended = 0;
  const bool mpi =
      processes && MPI_Initialized(&begun) == MPI_SUCCESS && begun && MPI_Finalized(&ended) == MPI_SUCCESS && !ended;
  // A failure that every rank has (a missing file) is rank 0's to print: it ends the others before they get to it.
  // Before MPI has begun that takes the launcher a while.
  if (processes && launchedRank() != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(mpi ? 500 : 4000));
  fflush(stdout);
  const std::string who = processes && launchedRank() ? fmt::format("rank {}: ", launchedRank()) : "";
  fputs(fmt::format("error: {}{}\n", who, message).c_str(), stderr); // nothing to be done where that fails
  fflush(stderr);
  if (mpi)
    abortMpi(int(status));
  return int(status);
}

int guardedMain(const std::function<int()> &fn) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN); // a file-size limit is an error of write, not the end of the process
  endOnInterrupt();
  try {
    const int status = fn();
    errno = 0;
    if (fflush(stdout) != 0 && errno != EPIPE) // a reader that closed the pipe has seen enough
      return fail(Status::Environment, "standard output cannot be written");
    return status;
  } catch (const Error &e) {
    return fail(e.status, e.what());
  } catch (const std::bad_alloc &) {
    return fail(Status::Environment, "out of memory");
  } catch (const std::system_error &e) { // what fmt::print throws: a full disk, a closed stream
    return fail(Status::Environment, e.what());
  } catch (const std::exception &e) {
    return fail(Status::Internal, fmt::format("internal error: {}", e.what()));
  } catch (...) {
    return fail(Status::Internal, "internal error of an unknown kind");
  }
}

void shortenThreadWaits(int argc, char **argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY"))
    return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string mine((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string given;
  for (int i = 0; i < argc; ++i)
    given.append(argv[i]).push_back('\0');
  if (mine != given)
    return;
  ::setenv("GOMP_SPINCOUNT", "5000", 1); // some tenths of a millisecond
  ::execv("/proc/self/exe", argv);       // where that fails the program goes on as it is
}

} // namespace cleave
