// The CPU device: matrix products, convolutions and pooling by oneDNN, the rest by own loops.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {
std::unique_ptr<Device> makeCpuDevice(unsigned threads);
} // namespace cleave
