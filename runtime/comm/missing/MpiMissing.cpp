// Replaces runtime/comm/MpiWorld.cpp in builds without MPI.
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"

#include <cstdlib>
#include <string_view>

namespace cleave {

/// Processes started by mpirun without another launcher's variables would each act as a complete job; makeMpiWorld
/// reports this as an error. If torchrun's variables are set too, the ranks use those.
bool startedByMpi() {
  if (std::getenv("WORLD_SIZE"))
    return false;
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char *size = std::getenv(name); size && std::string_view(size) != "1")
      return true;
  return false;
}

std::unique_ptr<RankEndpoint> makeMpiWorld(unsigned, double) {
  throw userError("mpi: this build was made without it (CLEAVE_MPI=OFF): start the ranks with torchrun's environment "
                  "(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT)");
}

bool mpiIsRunning() { return false; }

std::string mpiVersion() { return ""; }

void abortMpi(int status) { std::_Exit(status); }

} // namespace cleave
