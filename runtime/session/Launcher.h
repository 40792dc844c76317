// What the launcher says about this process: whether it is one of several ranks, and which. MPI's launchers (mpirun,
// srun: MpiWorld.h), or torchrun and compatible ones (SocketWorld.h).
#pragma once

namespace cleave {

/// Whether a launcher started this process as one of several ranks. Throws userError for invalid torchrun variables
/// (TorchEnvironment.h).
bool ranksAreProcesses();

/// The rank of this process from its launcher, 0 without one. Makes no MPI call and does not throw.
unsigned launchedRank();

/// The number of ranks that the launcher started; 1 without one, 0 if it does not say. Throws as ranksAreProcesses.
long launchedRanks();

/// Default number of threads per rank: cores / ranks on this host, at least 1. `ranks`: of the plan.
unsigned defaultThreads(unsigned ranks);

} // namespace cleave
