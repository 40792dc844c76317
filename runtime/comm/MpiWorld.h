// Ranks as MPI processes. The first MpiWorld initialises MPI (MPI_THREAD_FUNNELED); it is finalised at exit. Builds
// without MPI (CLEAVE_MPI=OFF) use missing/MpiMissing.cpp.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>

namespace cleave {

/// The world of all processes. If they do not meet within `seconds`, the process ends with a message. Throws a user
/// error that names both numbers if `expectedRanks` > 0, as the launcher says, differs from the size.
std::unique_ptr<RankEndpoint> makeMpiWorld(unsigned expectedRanks, double seconds = 300);

/// Whether MPI is initialised and not finalised, so that abortMpi reaches the other processes.
bool mpiIsRunning();

/// The library's version; empty in a build without MPI.
std::string mpiVersion();

/// Whether a launcher may start the library's ranks with PMI-1 or PMI-2 (srun --mpi=pmi2). Makes no MPI call that needs
/// MPI_Init.
bool mpiSpeaksPmi();

/// Ends all processes with this exit status, for failures that RankEndpoint::abort cannot send.
[[noreturn]] void abortMpi(int status);

} // namespace cleave
