// Where the ranks of a plan run: threads of this process, or one process each, started by mpirun or srun (MpiWorld.h)
// or by torchrun and launchers that set its environment (SocketWorld.h).
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/Agreement.h"

#include <functional>
#include <memory>

namespace cleave {

/// How long processes wait for each other at the start.
constexpr double meetingSeconds = 300;

/// Whether a launcher started this process as one rank of many. Throws userError for an environment like torchrun's
/// that is wrong (TorchEnvironment.h).
bool ranksAreProcesses();

/// The rank of this process as its launcher says, 0 without one. Needs no MPI call and throws nothing.
unsigned launchedRank();

/// Threads a rank gets when nobody says otherwise: cores / ranks on this host, at least 1. `ranks`: of the plan.
unsigned defaultThreads(unsigned ranks);

/// The plan that all ranks run: `make` is called on rank 0 alone and its bytes are sent to the other processes. They
/// find each other here and keep their connections until they end; `seconds`: how long one waits for the others to
/// start. `given`: what all of them must have been given alike; it is compared before the plan is made, and asked
/// for where there are several processes.
std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make,
                                                const std::function<GivenValues()> &given, double seconds = meetingSeconds);

/// Runs `fn` for every rank that lives in this process (all of them, or one under a launcher) and returns when they
/// have ended. Throws the first failure; userError naming both numbers when a launcher started another number of ranks.
void runPlanRanks(unsigned ranks, const std::function<void(unsigned rank, World &world)> &fn);

/// A program's main: calls `fn`, prints what it throws as "error: ..." and returns the exit status. Under a launcher
/// the failing rank ends all ranks, and a failure that all have is printed once. Ignores SIGPIPE.
int guardedMain(const std::function<int()> &fn);

/// Makes threads of a team sleep soon when they wait for each other, where the environment does not say otherwise: GNU
/// OpenMP spins for so long by default that on a machine with other work a step takes a thousand times its time. The
/// library reads its setting before main, so this starts the program once more; call it first. Does nothing where
/// `argv` is not this process's command line.
void shortenThreadWaits(int argc, char **argv);

} // namespace cleave
