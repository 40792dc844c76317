// List scheduling: a rank that is free begins the most urgent work that it can begin.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <limits>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// The order of urgency of works, and how far a stage may run ahead.
struct Policy {
  enum class First : uint8_t { Backward, Forward, Alternate };
  First first = First::Backward;
  /// Weight gradients run directly after their input gradients; otherwise when the rank has nothing else to do, or no
  /// memory left.
  bool weightsAtOnce = false;
  /// A weight gradient is not begun if a more urgent work arrives within this fraction of the weight gradient's time.
  double patience = 0;
  /// A stage begins at most ahead * (number of stages from it to the last one) forwards, rounded up, whose input
  /// gradients have not begun.
  double ahead = std::numeric_limits<double>::infinity();
  /// If set, the earliest of a rank's stages is the most urgent; otherwise the latest.
  bool earlyStagesFirst = false;
  /// The first stage begins a forward at most once in `pace` * (the work of the busiest rank for a microbatch), so that
  /// microbatches are in flight as briefly as possible and need little memory.
  double pace = 0;
};

/// The schedule that a policy produces, or nullopt if it cannot be finished. Only the sizes and the placement of
/// `shape` are used; the backward pass is split. `stages`: costs of each stage; `limits`: bytes that each rank may
/// hold.
///
/// The schedule can be finished if each rank can hold one microbatch in all its stages and the largest gradient: a
/// forward is begun only if after it the rank's later stages have room for one more microbatch.
std::optional<Schedule> greedySchedule(const Schedule &shape, const std::vector<StageCosts> &stages,
                                       const std::vector<double> &limits, const Policy &policy);

} // namespace cleave::partitioner
