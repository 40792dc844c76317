// Where the time and the memory of a simulated plan go.
#pragma once
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// Seconds of the collectives and messages along one axis (or axes, "dp+tp") on one rank.
struct AxisTime {
  std::string axis;
  double exposed =
      0; ///< while nothing is computed; a moment in which two axes communicate counts for the first to begin
  double hidden = 0; ///< while something is computed
};

/// Seconds of the steps with one module path and kind on one rank, in an iteration.
struct StepTime {
  std::string kind, path, location; ///< location: the user's line; "" if unknown
  bool communicates = false;
  double seconds = 0;
};

/// What forward passes of a stage keep for backward passes.
struct KeptBytes {
  std::string path;     ///< of the slot
  uint64_t bytes = 0;   ///< of a microbatch
  int64_t inFlight = 1; ///< microbatches for which they are kept at the same time
  uint64_t all() const { return bytes * static_cast<uint64_t>(inFlight); }
};

struct Breakdown {
  uint32_t rank = 0; ///< the first of those that compute longest; times are its
  ClassTimes times;
  std::vector<AxisTime> axes;  ///< the most exposed first
  std::vector<StepTime> steps; ///< the longest first
  MemoryUse memory;            ///< of the rank that comes closest to its device's memory
  MemoryParts parts;           ///< of that rank
  std::vector<KeptBytes> kept; ///< on that rank, the most first
};

/// `simulation`: of this plan on this cluster, with its timeline.
Breakdown breakdownOf(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation);

} // namespace cleave::partitioner
