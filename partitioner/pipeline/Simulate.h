// Simulates a pipeline schedule: the times of all works and messages, and the memory of each rank.
#pragma once
#include "partitioner/pipeline/Traffic.h"
#include "partitioner/schedule/Schedule.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace cleave::partitioner {

/// The costs of one stage for each microbatch. Times in milliseconds, at least 0.
struct StageCosts {
  double forward = 0, inputGradient = 0, weightGradient = 0;
  /// Time of a message from this stage to the one after (activations) or before (gradients). A stage on the same rank
  /// needs no message.
  double send = 0;
  /// Bytes that the rank holds: activations from the beginning of the forward to the end of the backward pass,
  /// gradients from the beginning of the backward pass (of its input gradient, if it is split) to its end (that of its
  /// weight gradient).
  double activationBytes = 0, gradientBytes = 0;
  /// Time of a message to the stage before, if it takes another time than `send`.
  std::optional<double> sendBack = std::nullopt;
  double ready = 0; ///< when the stage may begin at the earliest

  double message(Work work) const { return work == Work::Forward ? send : sendBack.value_or(send); }
  double of(Work work) const {
    return work == Work::Forward         ? forward
           : work == Work::Backward      ? inputGradient + weightGradient
           : work == Work::InputGradient ? inputGradient
                                         : weightGradient;
  }
  double work() const { return forward + inputGradient + weightGradient; }
};

/// Bytes that a work adds to the memory of its rank when it begins, and bytes that it frees when it ends.
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
  ScheduledWork result; // the work whose result is sent
  int64_t receiver = 0; // rank
  Span time;
};

struct RankTimeline {
  /// When each work of the rank's order runs.
  std::vector<Span> works;
  /// Messages that the rank sends, in order.
  std::vector<PipelineMessage> messages;
  /// Total times of works and of messages. Messages are sent while the rank works.
  double busy = 0, communication = 0;
  double peakBytes = 0;

  double span() const { return works.empty() ? 0 : works.back().end - works.front().begin; }
};

struct PipelineTimeline {
  std::vector<RankTimeline> ranks;
  /// From the beginning of the first work to the end of the last one.
  double step = 0;
  /// (span - busy) / span of the rank with the longest span from its first beginning to its last end (the zero-bubble
  /// paper, Qi et al., ICLR 2024); 0 if nothing takes time.
  double bubbleFraction = 0;
};

/// Simulates a schedule. A work begins when the one before it on its rank has ended and what it reads has arrived.
/// Messages from one rank to the same other rank are sent one after the other; they do not delay the sender's work.
/// `stages`: the costs of every stage. Throws environmentError for a schedule that check() (Schedule.h) rejects.
PipelineTimeline simulate(const Schedule &schedule, const std::vector<StageCosts> &stages);

/// Links that messages of several ranks share, such as that of a node to the network.
struct SharedLinks {
  uint32_t count = 0;
  std::vector<Flow> flows; ///< that share links: the messages of a work are one transfer
  std::map<std::pair<int64_t, int64_t>, uint32_t> flowOf; ///< by the ranks that send and receive
  /// Whether a message moves only from when on its receiver works with the one before it from the same rank, and a
  /// stage keeps the places of two gradients that it sends.
  bool oneAhead = false;

  /// Adds what the messages from one rank to another use of a link: a share of it, or of several links if above 1.
  void add(std::pair<int64_t, int64_t> ends, Flow::Use use);
};

inline const SharedLinks noSharedLinks;

/// Only the times of each rank's works; nullopt if the schedule never ends. The schedule must have every work once.
/// Messages to the same rank come one after the other; others share their links (Traffic.h).
std::optional<std::vector<std::vector<Span>>> timesOf(const Schedule &schedule, const std::vector<StageCosts> &stages,
                                                      const SharedLinks &shared = noSharedLinks);

/// The most bytes that each rank holds at once.
std::vector<double> peakBytes(const Schedule &schedule, const std::vector<StageCosts> &stages);

/// A lower bound of the step time, in milliseconds, from two facts: each rank waits for its first stage's input and
/// then does all its work; and one microbatch passes all stages forward and backward.
double lowestStep(const Schedule &schedule, const std::vector<StageCosts> &stages);

} // namespace cleave::partitioner
