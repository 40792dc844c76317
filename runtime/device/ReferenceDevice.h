// The reference device: plain loops, sums in double, one thread. What the others are compared with.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {
std::unique_ptr<Device> makeReferenceDevice();
} // namespace cleave
