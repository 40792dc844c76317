// What the launcher says about this process: whether it is one of several ranks, and which. MPI's launchers (mpirun,
// srun: MpiWorld.h), or torchrun and compatible ones (SocketWorld.h). A launcher that started one process counts as
// none: its ranks are threads. Processes of one job that do not know of each other are refused.
#pragma once

namespace cleave {

/// How this process was started, as its environment says.
struct Launch {
  enum class Ranks { Threads, Mpi, Sockets };
  Ranks are = Ranks::Threads;
  unsigned rank = 0; ///< of this process
  long ranks = 1;    ///< that were started; 0: unknown
  long here = 1;     ///< of these, on this host; 0: unknown
};

/// Reads the environment. Throws userError if torchrun's variables are invalid (TorchEnvironment.h), if a Slurm step
/// has several tasks that cannot find each other, or if the MPI library does not know the way in which srun started
/// them. Several launchers may have left variables: mpirun's win over torchrun's, and these over those of srun, which
/// starts the other two.
Launch launched();

/// Whether a launcher started this process as one of several ranks. Throws as launched().
bool ranksAreProcesses();

/// Whether they are MPI's. Throws as launched().
bool startedByMpi();

/// The rank of this process from its launcher, 0 without one. Makes no MPI call and does not throw.
unsigned launchedRank();

/// The number of ranks that the launcher started; 1 without one, 0 if it does not say. Throws as launched().
long launchedRanks();

/// Default number of threads per rank: cores / ranks on this host, at least 1. `ranks`: of the plan.
unsigned defaultThreads(unsigned ranks);

} // namespace cleave
