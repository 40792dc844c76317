// Times work on the device.
#pragma once
#include "runtime/cuda/driver/Context.h"

#include <functional>

namespace cleave::cuda {

/// Milliseconds that `work` takes on the stream: the median of a few runs after two warm-up runs. Waits for the device.
double measure(CUstream stream, const std::function<void()> &work);

} // namespace cleave::cuda
