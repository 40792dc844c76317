// Times work by events around several runs.
#include "runtime/cuda/driver/Measure.h"

#include <algorithm>
#include <array>

namespace cleave::cuda {

double measure(CUstream stream, const std::function<void()> &work) {
  work();
  work();
  std::array<double, 5> times{};
  const Event begin = Event::make(true), end = Event::make(true);
  for (double &time : times) {
    begin.record(stream);
    work();
    end.record(stream);
    end.synchronize();
    time = end.millisecondsSince(begin);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

} // namespace cleave::cuda
