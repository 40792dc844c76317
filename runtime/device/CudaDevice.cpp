// The missing CUDA device.
#include "runtime/device/CudaDevice.h"

#include "runtime/base/Error.h"

namespace cleave {

std::unique_ptr<Device> makeCudaDevice() {
  throw environmentError("--backend cuda: no CUDA device: this build runs on CPUs only");
}

} // namespace cleave
