// Runs cases in separate processes, so that a crash or a hang is an ordinary result.
#pragma once
#include "tests/random/Run.h"

#include <functional>

namespace cleave::random_models {

struct ChildLimits {
  unsigned jobs = 2;
  double seconds = 30; ///< time limit of one case
};

/// Calls `work(i)` for i in [0, count), each in a child process, and `take(i, result)` in this process when a child
/// ends. No further child starts after `take` returned false.
void runInChildren(size_t count, const ChildLimits &limits, const std::function<Result(size_t)> &work,
                   const std::function<bool(size_t, const Result &)> &take);

/// Runs one case in a child process.
Result runInChild(const Recipe &recipe, const RunSettings &settings, const ChildLimits &limits);

} // namespace cleave::random_models
