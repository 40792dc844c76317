// Ranks as MPI processes. MPI is initialised (funneled threads) by the first MpiWorld and finalised at exit.
// A build without MPI (CLEAVE_MPI=OFF) has missing/MpiMissing.cpp instead.
#pragma once
#include "runtime/comm/Communicator.h"

#include <string>

namespace cleave {

/// Whether this process was started by mpirun, srun or another launcher that MPI knows.
bool startedByMpi();

/// The world of all processes, which meet within `seconds`, or this process ends with a message. Throws a user error,
/// naming both, when `expectedRanks` > 0 is not its size.
std::unique_ptr<World> makeMpiWorld(unsigned expectedRanks, double seconds = 300);

/// Whether MPI has been initialised and not yet finalised: abortMpi then reaches the other processes.
bool mpiIsRunning();

/// Of the library; empty in a build without MPI.
std::string mpiVersion();

/// Ends all processes with this exit status, for a failure that cannot be told by World::abort.
[[noreturn]] void abortMpi(int status);

} // namespace cleave
