// The reference device: plain loops, sums in double, one thread. Other devices are compared with it.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {
std::unique_ptr<Device> makeReferenceDevice();
} // namespace cleave
