// List scheduling: a rank that is free begins the most urgent work that it can begin.
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <limits>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// What is most urgent, and how far a stage runs ahead.
struct Policy {
  enum class First : uint8_t { Backward, Forward, Alternate };
  First first = First::Backward;
  /// Weight gradients directly after their input gradients; otherwise when the rank has nothing else to do, or no
  /// memory left.
  bool weightsAtOnce = false;
  /// A weight gradient is not begun where something more urgent arrives within this part of its time.
  double patience = 0;
  /// A stage begins at most ahead * (stages from it to the last one) forwards, rounded up, without their input
  /// gradients.
  double ahead = std::numeric_limits<double>::infinity();
  /// Of several stages of a rank the earliest is most urgent; otherwise the latest.
  bool earlyStagesFirst = false;
  /// The first stage begins a forward at most once in `pace` * (the work of the busiest rank for a microbatch), so that
  /// microbatches stay under way no longer than they must, and need the least memory.
  double pace = 0;
};

/// The schedule that follows from a policy, or nullopt where it does not end. `shape`: sizes and placement; the rest
/// is ignored: the backward pass is split. `stages`: costs of each stage; `limits`: bytes that each rank may hold.
///
/// It ends where each rank can hold one microbatch in all its stages and the largest gradient: a forward is begun only
/// if after it the rank's later stages have room for one more microbatch.
std::optional<Schedule> greedySchedule(const Schedule &shape, const std::vector<StageCosts> &stages,
                                       const std::vector<double> &limits, const Policy &policy);

} // namespace cleave::partitioner
