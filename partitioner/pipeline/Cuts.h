// Cuts a list of costs into runs.
#pragma once
#include <cstddef>
#include <vector>

namespace cleave::partitioner {

/// Splits `costs` into `parts` non-empty runs and minimises the largest sum; returns the start of each run.
std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts);

} // namespace cleave::partitioner
