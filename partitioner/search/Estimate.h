// The time and memory of a plan, composed of the costs of its layers.
#pragma once
#include "partitioner/pipeline/Simulate.h"
#include "partitioner/search/LayerCosts.h"
#include "partitioner/search/Space.h"

#include <string>
#include <vector>

namespace cleave::partitioner {

/// A layer of the model for the search.
struct SearchLayer {
  std::string path;        ///< "" if no op belongs to a module
  std::string measured;    ///< the key of PlanCosts::layers
  bool parameters = false; ///< a stage needs at least one such layer
  double sentBytes = 0;    ///< of one sample, if a stage ends behind the layer
};

struct Estimate {
  double seconds = 0; ///< of an iteration
  double lower = 0;   ///< no schedule of these stages is faster
  double bytes = 0;   ///< of the rank that needs most
};

/// Cuts layers into stages whose longest is as short as possible; returns the first layer of each, or nothing if there
/// are too few layers. Layers without parameters join the one before.
std::vector<size_t> cutStages(const std::vector<SearchLayer> &layers, const PlanCosts &use, size_t stages);

/// Estimates the plans of a group. `secondsPerByte`: of a message between neighbouring stages.
class Estimator {
public:
  Estimator(const std::vector<SearchLayer> &layers, const PlanGroup &group, const PlanCosts &use,
            double secondsPerByte);

  /// A lower bound of every schedule with this number of stages on each rank, without the tail of the iteration.
  double lowest(int64_t chunks) const;
  Estimate of(const ScheduleChoice &schedule) const;
  /// Bytes that the rank with most needs in any plan of the group: at least the average, with one microbatch in flight.
  double leastBytes() const;

private:
  struct Stage {
    StageCosts costs;
    double fixed = 0, transient = 0, parameters = 0; ///< bytes; parameters: a part of `fixed`
  };
  std::vector<Stage> stagesOf(const std::vector<size_t> &begins) const;
  /// Seconds before and after the passes of a rank with so many bytes of parameters. The first microbatch's forward
  /// pass hides what gathers parameters, the last one's backward pass what sums gradients.
  double exposedEnds(double bytes, double forward, double backward) const;

  const std::vector<SearchLayer> &layers;
  const PlanGroup &group;
  const PlanCosts &use;
  double secondsPerByte;
};

} // namespace cleave::partitioner
