// Ranks as threads or processes, and the main function of programs.
#include "runtime/session/Launch.h"
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "runtime/session/Interrupt.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <new>
#include <sched.h>
#include <string>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
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

namespace {

/// The world of this process, created on first use and kept until the process ends, so that ranks meet only once.
class ProcessWorld {
public:
  ~ProcessWorld() {
    if (!dynamic_cast<SocketWorld *>(world.get())) // MPI may be finalised already; it frees its own resources
      (void)world.release();
  }
  World &get(double seconds) {
    if (world)
      return *world;
    attempted = true;
    if (const auto torch = torchRank())
      world = std::make_unique<SocketWorld>(*torch, seconds);
    else
      world = makeMpiWorld(0, seconds);
    return *world;
  }
  /// Null if the ranks have not met.
  World *met() const { return world.get(); }
  /// Whether this process has tried to meet the others.
  bool tried() const { return attempted; }

private:
  bool attempted = false;
  std::unique_ptr<World> world;
};

} // namespace

static ProcessWorld &processWorld() {
  static ProcessWorld world;
  return world;
}

/// Calls `fn` with this process's world.
template <typename Fn> static void withProcessWorld(double seconds, Fn fn) {
  World &world = processWorld().get(seconds);
  try {
    fn(world);
  } catch (const Error &error) {
    world.abort(error.what(), error.status);
    throw;
  } catch (const std::bad_alloc &) {
    world.abort("out of memory", Status::Environment);
    throw;
  } catch (const std::exception &error) {
    world.abort(error.what(), Status::Internal);
    throw;
  } catch (...) {
    world.abort("unknown exception", Status::Internal);
    throw;
  }
}

void waitForSlowRanks(World &world, double silence) {
  world.setTimeout(24 * 3600);
  world.setSilence(silence);
}

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

std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make,
                                                const std::function<ValuesToAgree()> &given, double seconds) {
  if (!ranksAreProcesses())
    return make();
  std::shared_ptr<const PlanFile> plan;
  withProcessWorld(seconds, [&](World &world) {
    waitForSlowRanks(world, seconds); // rank 0 may compile for a long time
    compareAmongRanks(world, given());
    std::vector<uint8_t> bytes;
    if (world.rank() == 0) {
      plan = make();
      bytes.assign(plan->bytes().begin(), plan->bytes().end());
    }
    world.broadcast(bytes);
    if (!plan)
      plan = PlanFile::fromBytes(std::move(bytes), "the plan that rank 0 sent");
  });
  return plan;
}

void runPlanRanks(unsigned ranks, const std::function<void(unsigned, World &)> &fn) {
  if (!ranksAreProcesses()) {
    LocalWorld world(ranks);
    runRanks(world, [&](unsigned rank) { fn(rank, world[rank]); });
    return;
  }
  withProcessWorld(meetingSeconds, [&](World &world) {
    if (world.size() != ranks)
      throw userError(fmt::format("the plan is for {}, {} started {}", counted(ranks, "rank"),
                                  startedByMpi() ? "mpi" : "the launcher (WORLD_SIZE)",
                                  world.size() == 1 ? "1 process" : fmt::format("{} processes", world.size())));
    fn(world.rank(), world);
    world.barrier(); // do not leave while another rank may still fail
  });
}

void runLaunchedRank(const std::function<void(World &)> &fn) {
  withProcessWorld(meetingSeconds, [&](World &world) {
    world.setTimeout(meetingSeconds);
    fn(world);
    world.barrier();
  });
}

static void printError(unsigned rank, const std::string &message) {
  fflush(stdout);
  const std::string who = rank ? fmt::format("rank {}: ", rank) : "";
  fputs(fmt::format("error: {}{}\n", who, message).c_str(), stderr); // nothing can be done if this fails
  fflush(stderr);
}

// Rank 0 prints a failure that every rank has (a missing file), and it or the launcher ends the others before they
// print. Before the ranks have met, the launcher needs longer.
static constexpr auto soon = std::chrono::milliseconds(500), late = std::chrono::milliseconds(4000);

/// Prints the message, unless rank 0 prints the same, and notifies the other ranks. MPI processes are ended by
/// MPI_Abort, because they may be blocked.
static int failAmongRanks(Status status, const std::string &message) {
  static volatile std::sig_atomic_t quiet;
  quiet = int(status);
  const unsigned rank = launchedRank();
  if (rank != 0) // the launcher may end this process while it waits for rank 0's verdict
    std::signal(SIGTERM, [](int) { _exit(quiet); });
  bool said = false;
  if (World *world = processWorld().met()) {
    world->abort(message, status);
    said = rank != 0 && world->rankZeroSays(message, std::chrono::duration<double>(soon).count());
  } else if (rank != 0 && !processWorld().tried()) // otherwise the message may be this rank's alone
    std::this_thread::sleep_for(late);
  if (!said)
    printError(rank, message);
  if (mpiIsRunning()) {
    if (said) // rank 0 ends all ranks
      std::this_thread::sleep_for(late);
    abortMpi(int(status));
  }
  return int(status);
}

/// Prints the message and notifies other processes, which may be waiting for this one.
static int fail(Status status, const std::string &message) {
  bool ranks = false;
  try {
    ranks = ranksAreProcesses();
  } catch (const Error &) { // the message reports it
  }
  if (ranks)
    return failAmongRanks(status, message);
  printError(0, message);
  return int(status);
}

void prepareProcess() {
  holdStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN); // exceeding a file-size limit should be a write error, not end the process
  endOnSignals(launchedRank());
}

/// The exit status of `fn`; prints its exceptions.
static int guarded(const std::function<int()> &fn) {
  try {
    const int status = fn();
    finishStandardStreams();
    return status;
  } catch (const Error &e) {
    return fail(e.status, e.what());
  } catch (const std::bad_alloc &) {
    return fail(Status::Environment, "out of memory");
  } catch (const std::system_error &e) { // thrown by fmt::print: a full disk, a closed stream
    if (e.code() == std::errc::broken_pipe && outputReaderLeft())
      return int(Status::Success);
    return fail(Status::Environment, std::ferror(stdout) ? outputLost(e.code().message()) : e.what());
  } catch (const std::exception &e) {
    return fail(Status::Internal, fmt::format("internal error: {}", e.what()));
  } catch (...) {
    return fail(Status::Internal, "internal error of an unknown kind");
  }
}

int guardedMain(const std::function<int()> &fn) {
  prepareProcess();
  enlargeStacks();
  int status = 0;
  try {
    onLargeStack([&] {
      useSignalStack();
      status = guarded(fn);
    });
  } catch (const Error &e) { // there is no such thread
    return fail(e.status, e.what());
  }
  return status;
}

/// The path by which this program was started, so that `ps` shows the same name; the kernel's link if another file is
/// there now.
static const char *ownPath() {
  const char *self = "/proc/self/exe";
  const auto given = getauxval(AT_EXECFN);
  const char *path = reinterpret_cast<const char *>(given);
  struct stat mine, there;
  const bool same = given && ::stat(self, &mine) == 0 && ::stat(path, &there) == 0 && mine.st_dev == there.st_dev &&
                    mine.st_ino == there.st_ino;
  return same ? path : self;
}

void shortenThreadWaits(int argc, char **argv) {
  prepareProcess();
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY"))
    return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string mine((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string given;
  for (int i = 0; i < argc; ++i)
    given.append(argv[i]).push_back('\0');
  if (mine != given)
    return;
  ::setenv("GOMP_SPINCOUNT", "5000", 1); // a fraction of a millisecond
  holdInterrupts(true);                  // an interrupt until the program is ready again is not lost
  ::execv(ownPath(), argv);              // if this fails, the program continues unchanged
  holdInterrupts(false);
}

} // namespace cleave
