// The segments of a training iteration or an evaluation. The same kinds are used from the cut of the step to the plan.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

namespace cleave::partitioner {

/// In the order in which a stage runs them. Begin, ReduceWeights, Reduce and Update, EvalBegin and EvalReduce run once
/// for all stages of a rank; the others once per stage and microbatch.
enum class SegmentKind : uint8_t {
  Begin,
  Weights,       ///< of a loss with several terms, before the first forward
  ReduceWeights, ///< sums them over the ranks
  Forward,
  Backward, ///< gradients of the stage's input and weights; the next two replace it if the backward pass is split
  InputGradient,
  WeightGradient,
  Reduce,
  Update,
  EvalBegin,
  Eval,
  EvalReduce,
  Finish, ///< only waits for messages
};

/// A segment of a rank. `chunk`: which of the rank's stages, counted from 0 in the order in which the model runs; 0 if
/// the segment belongs to the whole rank.
struct SegmentId {
  SegmentKind kind = SegmentKind::Forward;
  int64_t chunk = 0;
  auto operator<=>(const SegmentId &) const = default;
  /// "forward"; for a rank's second stage "forward.1".
  std::string str() const;
};

/// An entry of a rank's schedule: a segment and its microbatch (0 if it has none).
struct ScheduleItem {
  SegmentId segment;
  int64_t microbatch = 0;
  bool operator==(const ScheduleItem &) const = default;
};

} // namespace cleave::partitioner
