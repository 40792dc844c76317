// Runs the ranks of a plan: as threads of this process, or as one process each (Launcher.h). A process meets the other
// ranks once and stays connected until it ends.
#pragma once
#include "runtime/comm/Communicator.h"

#include <functional>

namespace cleave {

/// How long processes wait for each other at start.
constexpr double meetingSeconds = 300;

/// Calls `fn` with the world of this process; the first call meets the other ranks, each waiting at most `seconds` for
/// the others to start. If `fn` throws, the other ranks end too. Only if ranksAreProcesses().
void withProcessWorld(double seconds, const std::function<void(RankEndpoint &world)> &fn);

/// The world of this process; null if the ranks have not met.
RankEndpoint *metWorld();

/// Whether this process has tried to meet the others.
bool triedToMeet();

/// Runs `fn` for every rank in this process (all of them, or one under a launcher) and returns when they have ended.
/// Throws the first failure; throws userError that names both numbers if the launcher started another number of ranks.
void runPlanRanks(unsigned ranks, const std::function<void(unsigned rank, RankEndpoint &world)> &fn);

/// From now on the ranks of this process wait for others as long as these are alive, whatever they do meanwhile
/// (compile, load, write files). `silence`: seconds after which a process counts as stopped. RankEndpoint::setTimeout
/// ends this.
void waitForSlowRanks(RankEndpoint &world, double silence);

/// Calls `fn` with the world of this process and returns when all ranks have. Only if ranksAreProcesses().
void runLaunchedRank(const std::function<void(RankEndpoint &world)> &fn);

} // namespace cleave
