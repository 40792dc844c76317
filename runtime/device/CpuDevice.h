// The CPU device: oneDNN runs matrix products, convolutions and pooling; the runtime's own loops run all other steps.
#pragma once
#include "runtime/device/Device.h"

#include <string>

namespace cleave {
/// Throws a user error in a build without oneDNN.
std::unique_ptr<Device> makeCpuDevice(unsigned threads, Tuning *tuning);
/// oneDNN's version; empty in a build without it.
std::string cpuLibraryVersion();
} // namespace cleave
