// Replaces runtime/comm/MpiWorld.cpp in builds without MPI.
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"

#include <cstdlib>

namespace cleave {

std::unique_ptr<RankEndpoint> makeMpiWorld(unsigned, double) {
  throw userError("mpi: this build was made without it (CLEAVE_MPI=OFF): start the ranks with torchrun's environment "
                  "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT)");
}

bool mpiIsRunning() { return false; }

std::string mpiVersion() { return ""; }

bool mpiSpeaksPmi() { return true; } // makeMpiWorld tells what is missing

void abortMpi(int status) { std::_Exit(status); }

} // namespace cleave
