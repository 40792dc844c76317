// What a pipeline schedule costs: the times of all its works and messages, and what each rank holds.
#pragma once
#include "partitioner/schedule/Schedule.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// What one stage costs for each microbatch. Times in milliseconds, at least 0.
struct StageCosts {
  double forward = 0, inputGradient = 0, weightGradient = 0;
  /// Time of a message from this stage to the one after (activations) or before (gradients). A stage on the same rank
  /// needs no message.
  double send = 0;
  /// What the rank holds from the beginning of the forward to the end of the backward pass, and from the beginning of
  /// the backward pass (of its input gradient, if it is split) to its end (that of its weight gradient).
  double activationBytes = 0, gradientBytes = 0;

  double of(Work work) const {
    return work == Work::Forward         ? forward
           : work == Work::Backward      ? inputGradient + weightGradient
           : work == Work::InputGradient ? inputGradient
                                         : weightGradient;
  }
  double work() const { return forward + inputGradient + weightGradient; }
};

/// What a work adds to what its rank holds when it begins, and what it frees when it ends.
inline double bytesTaken(Work work, const StageCosts &costs) {
  return work == Work::Forward ? costs.activationBytes : work == Work::WeightGradient ? 0 : costs.gradientBytes;
}
inline double bytesFreed(Work work, const StageCosts &costs) {
  return work == Work::Backward || work == Work::WeightGradient ? costs.activationBytes + costs.gradientBytes : 0;
}

/// From begin to end, in milliseconds since the step began.
struct Span {
  double begin = 0, end = 0;
};

struct PipelineMessage {
  ScheduledWork result; // of which work
  int64_t receiver = 0; // rank
  Span time;
};

struct RankTimeline {
  /// When each work of the rank's order runs.
  std::vector<Span> works;
  /// What the rank sends, in order.
  std::vector<PipelineMessage> messages;
  /// Sums of the works' and the messages' times. Messages move while the rank works.
  double busy = 0, communication = 0;
  double peakBytes = 0;

  double span() const { return works.empty() ? 0 : works.back().end - works.front().begin; }
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  /// From the beginning of the first work to the end of the last one.
  double step = 0;
  /// (span - busy) / span of the rank with the longest span from its first beginning to its last end (the zero-bubble
  /// paper, Qi et al., ICLR 2024); 0 if nothing takes time.
  double bubbleFraction = 0;
};

/// Runs a schedule. A work begins when the one before it on its rank has ended and what it reads has arrived. Messages
/// of a rank to the same rank follow each other; they take no time from its work. `stages`: a cost for every stage.
/// Throws environmentError for a schedule that check() (Schedule.h) refuses.
Timeline simulate(const Schedule &schedule, const std::vector<StageCosts> &stages);

/// The times alone of each rank's works; nullopt if the schedule never ends. The schedule must have every work once.
std::optional<std::vector<std::vector<Span>>> timesOf(const Schedule &schedule, const std::vector<StageCosts> &stages);

/// The most bytes that each rank holds at once.
std::vector<double> peakBytes(const Schedule &schedule, const std::vector<StageCosts> &stages);

/// A step time that no schedule is below, in milliseconds: each rank waits for its first stage's input and then does
/// all its work; and one microbatch passes all stages forth and back.
double lowestStep(const Schedule &schedule, const std::vector<StageCosts> &stages);

} // namespace cleave::partitioner
