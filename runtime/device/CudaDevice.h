// The CUDA device. There is none yet: asking for it is an error that says so.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {
/// Throws an environment error that names the missing device.
std::unique_ptr<Device> makeCudaDevice();
} // namespace cleave
