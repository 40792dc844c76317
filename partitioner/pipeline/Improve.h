// Local search: makes a schedule shorter by moving single works within their rank's order.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <vector>

namespace cleave::partitioner {

/// A schedule no slower than `schedule`, within the same limits (bytes that each rank may hold). Simulated annealing
/// (Kirkpatrick et al. 1983) over moves of works on the critical path: no other moves can shorten a schedule (van
/// Laarhoven et al. 1992). Ends after `trials` simulations, or when the step takes `lowest`. The same input gives the
/// same result.
Schedule improved(const Schedule &schedule, const std::vector<StageCosts> &stages, const std::vector<double> &limits,
                  double lowest, size_t trials);

} // namespace cleave::partitioner
