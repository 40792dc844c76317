// Fits the constants of a cluster to measured runs.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/simulate/ReadTrace.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// A plan and runs of it. The plan has passed the checks of its structure.
struct PlanRuns {
  const plan::Plan *plan;
  std::vector<MeasuredRun> runs; ///< at least one
};

struct CalibratedConstant {
  std::string name; ///< as in the cluster file: "devices.core.constants.launch_us"
  double before = 0, after = 0;
  bool determined = false; ///< otherwise it keeps its value
  double error = 0;        ///< relative standard error
  size_t steps = 0;        ///< whose time depends on it
  double missBefore = 0,
         missAfter = 0; ///< median over these steps, weighted as in the fit, of |predicted / measured - 1|
};

struct CalibratedPlan {
  uint32_t iterations = 0;
  size_t steps = 0;                           ///< different steps whose times were used
  double measured = 0, before = 0, after = 0; ///< seconds of an iteration: median of the runs, predictions
};

struct Calibration {
  Cluster cluster;
  size_t steps = 0;                     ///< of all plans
  double missBefore = 0, missAfter = 0; ///< the same over all steps
  std::vector<CalibratedConstant> constants;
  std::vector<CalibratedPlan> plans;
};

/// Fits the constants that `cluster` has or may have (DeviceKind::constants) to the medians of the times of the plans'
/// steps (Fit.h): first memory and links to all steps but products, then products. A step's weight is the square root
/// of its share of the plan's time. Not fitted: the peaks and the memory bandwidths of GPUs, which are those of the
/// datasheet, and sizes of memories. Throws as simulate does; environmentError if the runs determine no constant.
Calibration calibrate(const Cluster &cluster, const std::vector<PlanRuns> &plans);

} // namespace cleave::partitioner
