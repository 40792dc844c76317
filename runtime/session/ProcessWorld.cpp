// The world of this process, and the ranks that run in it.
#include "runtime/session/ProcessWorld.h"
#include "runtime/base/Counted.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/MpiWorld.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "runtime/session/Launcher.h"

#include <fmt/format.h>
#include <memory>
#include <new>

namespace cleave {

namespace {

/// The world of this process, created on first use and kept until the process ends, so that ranks meet only once.
struct ProcessWorld {
  std::unique_ptr<RankEndpoint> world; ///< null if the ranks have not met
  bool tried = false;           ///< to meet

  ~ProcessWorld() {
    if (!dynamic_cast<SocketWorld *>(world.get())) // MPI may be finalised already; it frees its own resources
      (void)world.release();
  }
  RankEndpoint &get(double seconds) {
    if (world)
      return *world;
    tried = true;
    if (const Launch started = launched(); started.are == Launch::Ranks::Mpi)
      world = makeMpiWorld(unsigned(started.ranks), seconds);
    else
      world = std::make_unique<SocketWorld>(torchEnvironment().value(), seconds);
    return *world;
  }
};

} // namespace

static ProcessWorld &processWorld() {
  static ProcessWorld world;
  return world;
}

void withProcessWorld(double seconds, const std::function<void(RankEndpoint &)> &fn) {
  RankEndpoint &world = processWorld().get(seconds);
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

RankEndpoint *metWorld() { return processWorld().world.get(); }

bool triedToMeet() { return processWorld().tried; }

void waitForSlowRanks(RankEndpoint &world, double silence) {
  world.setTimeout(24 * 3600);
  world.setSilence(silence);
}

void runPlanRanks(unsigned ranks, const std::function<void(unsigned, RankEndpoint &)> &fn) {
  if (!ranksAreProcesses()) {
    LocalWorld world(ranks);
    runRanks(world, [&](unsigned rank) { fn(rank, world[rank]); });
    return;
  }
  withProcessWorld(meetingSeconds, [&](RankEndpoint &world) {
    if (world.size() != ranks)
      throw userError(fmt::format("the plan is for {}, {} started {}", counted(ranks, "rank"),
                                  startedByMpi() ? "mpi" : "the launcher (WORLD_SIZE)",
                                  world.size() == 1 ? "1 process" : fmt::format("{} processes", world.size())));
    fn(world.rank(), world);
    world.barrier(); // do not leave while another rank may still fail
  });
}

void runLaunchedRank(const std::function<void(RankEndpoint &)> &fn) {
  withProcessWorld(meetingSeconds, [&](RankEndpoint &world) {
    world.setTimeout(meetingSeconds);
    fn(world);
    world.barrier();
  });
}

} // namespace cleave
