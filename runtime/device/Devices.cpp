// Creates devices by name.
#include "runtime/base/Error.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/device/ReferenceDevice.h"

#include <fmt/format.h>

namespace cleave {

std::unique_ptr<Device> makeDevice(const std::string &name, unsigned threads, Tuning *tuning) {
  if (name == "cpu")
    return makeCpuDevice(threads, tuning);
  if (name == "reference")
    return makeReferenceDevice();
  throw userError(fmt::format("--backend must be cpu, reference or cuda, found '{}'", name));
}

} // namespace cleave
