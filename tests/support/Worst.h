// The largest difference between found and expected numbers.
#pragma once
#include <algorithm>
#include <cmath>

namespace cleave::test {

/// The larger one. A difference that is NaN counts as infinite: std::max would ignore it, and the test would pass.
inline double worseOf(double worst, double difference) {
  return std::isnan(difference) ? INFINITY : std::max(worst, difference);
}

} // namespace cleave::test
