// Ranks as MPI processes. The first MpiWorld initialises MPI (MPI_THREAD_FUNNELED); it is finalised at exit. Builds
// without MPI (CLEAVE_MPI=OFF) use missing/MpiMissing.cpp.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>

namespace cleave {

/// Whether this process was started by mpirun, srun or another launcher that MPI knows.
bool startedByMpi();

/// The world of all processes. If they do not meet within `seconds`, the process ends with a message. Throws a user
/// error that names both numbers if `expectedRanks` > 0 differs from the size.
std::unique_ptr<RankEndpoint> makeMpiWorld(unsigned expectedRanks, double seconds = 300);

/// Whether MPI is initialised and not finalised, so that abortMpi reaches the other processes.
bool mpiIsRunning();

/// The library's version; empty in a build without MPI.
std::string mpiVersion();

/// Ends all processes with this exit status, for failures that RankEndpoint::abort cannot send.
[[noreturn]] void abortMpi(int status);

} // namespace cleave
