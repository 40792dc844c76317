// Runs the ranks of a plan: as threads of this process, or as one process each, started by mpirun or srun (MpiWorld.h),
// or by torchrun and compatible launchers (SocketWorld.h).
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/Agreement.h"

#include <functional>
#include <memory>

namespace cleave {

/// How long processes wait for each other at start.
constexpr double meetingSeconds = 300;

/// Whether a launcher started this process as one of several ranks. Throws userError for invalid torchrun variables
/// (TorchEnvironment.h).
bool ranksAreProcesses();

/// The rank of this process from its launcher, 0 without one. Makes no MPI call and does not throw.
unsigned launchedRank();

/// Default number of threads per rank: cores / ranks on this host, at least 1. `ranks`: of the plan.
unsigned defaultThreads(unsigned ranks);

/// The plan for all ranks: `make` is called only on rank 0, and its bytes are sent to the other processes. The
/// processes meet here and stay connected until they end; `seconds`: how long one waits for the others to start.
/// `given`: the values that must be equal in all processes, compared before the plan is made; called only if there are
/// several processes.
std::shared_ptr<const PlanFile> planForAllRanks(const std::function<std::shared_ptr<const PlanFile>()> &make,
                                                const std::function<ValuesToAgree()> &given,
                                                double seconds = meetingSeconds);

/// Runs `fn` for every rank in this process (all of them, or one under a launcher) and returns when they have ended.
/// Throws the first failure; throws userError that names both numbers if the launcher started another number of ranks.
void runPlanRanks(unsigned ranks, const std::function<void(unsigned rank, World &world)> &fn);

/// From now on the ranks of this process wait for others as long as these are alive, whatever they do meanwhile
/// (compile, load, write files). `silence`: seconds after which a process counts as stopped. World::setTimeout ends
/// this.
void waitForSlowRanks(World &world, double silence);

/// Calls `fn` with the world of this process and returns when all ranks have. Only if ranksAreProcesses().
void runLaunchedRank(const std::function<void(World &world)> &fn);

/// The main function of a program: calls `fn`, prints exceptions as "error: ..." and returns the exit status. Under a
/// launcher a failing rank ends all ranks, and a failure common to all is printed once. Runs `fn` on a thread whose
/// stack does not depend on the user's limit. Includes prepareProcess.
int guardedMain(const std::function<int()> &fn);

/// Prepares standard streams and signals (Interrupt.h), and ignores SIGPIPE; call it as early as possible.
void prepareProcess();

/// Makes waiting OpenMP threads sleep soon, unless the environment sets otherwise: by default GNU OpenMP spins for so
/// long that on a busy machine a step takes a thousand times longer. The library reads its setting before main, so this
/// restarts the program; call it first. Does nothing if `argv` is not this process's command line.
void shortenThreadWaits(int argc, char **argv);

} // namespace cleave
