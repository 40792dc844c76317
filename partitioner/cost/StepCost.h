// Seconds of one step on one device: a roofline per class of step.
//
//   time = launch + max(operations / (peak * fraction that tiles reach), bytes / (bandwidth * fraction of the class))
//
// (Williams, Waterman, Patterson: Roofline, 2009). Matrix products on GPUs are computed in tiles, a wave of one tile
// per multiprocessor at a time, so that sizes that do not fill the last wave lose time; each tile needs time to fill
// its pipeline, so that short sums lose time. Convolutions are implicit matrix products.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Constants.h"
#include "partitioner/cost/Work.h"

namespace cleave::partitioner {

/// A device for the cost model: peaks and bandwidth of the cluster file, constants of its family or of the file.
struct CostDevice {
  DeviceKind kind;
  DeviceConstants constants;
  explicit CostDevice(DeviceKind given) : kind(std::move(given)), constants(constantsOf(kind)) {}
};

/// The parts of a step's time, in seconds. `compute` and `memory` overlap.
struct StepCost {
  double launch = 0, compute = 0, memory = 0;
  double seconds() const { return launch + (compute > memory ? compute : memory); }
};

/// Throws userError if the device has no peak for the work's rate.
StepCost stepCost(const StepWork &work, const CostDevice &device);

/// The fraction of the peak that a product in tiles reaches: 1 for full waves and an infinite sum. On GPUs only.
double tiledFraction(int64_t m, int64_t n, int64_t k, int64_t batch, Rate rate, const DeviceConstants &constants);

} // namespace cleave::partitioner
