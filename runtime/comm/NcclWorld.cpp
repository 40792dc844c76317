// The missing NCCL communicator.
#include "runtime/comm/NcclWorld.h"

#include "runtime/base/Error.h"

namespace cleave {

std::unique_ptr<World> makeNcclWorld(unsigned) {
  throw environmentError("nccl: no CUDA device: this build runs ranks on CPUs only (local threads or mpi)");
}

} // namespace cleave
