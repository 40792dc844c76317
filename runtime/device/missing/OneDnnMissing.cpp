// Replaces runtime/device/OneDnn*.cpp in builds without oneDNN.
#include "runtime/base/Error.h"
#include "runtime/device/CpuDevice.h"

namespace cleave {

std::unique_ptr<Device> makeCpuDevice(unsigned, Tuning *) {
  throw userError("--device cpu: this build lacks oneDNN, which computes products and convolutions "
                  "(CLEAVE_ONEDNN=OFF): use --device reference, or a full build");
}

std::string cpuLibraryVersion() { return ""; }

} // namespace cleave
