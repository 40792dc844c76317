// Pipeline schedules as values: the order in which every rank works on the stages and microbatches.
#pragma once
#include "partitioner/schedule/Segment.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// What a stage computes for a microbatch. A joined backward pass is one work, Backward. A split one is two: the
/// gradient of the stage's input, which the stage before waits for, and the gradients of its weights, which no other
/// stage waits for.
enum class Work : uint8_t { Forward, Backward, InputGradient, WeightGradient };

/// Whether a schedule has the backward pass of a stage and microbatch as one work, or as two. The zero-bubble schedules
/// need two: weight gradients fill the time in which a rank would wait.
enum class BackwardPass : uint8_t { Joined, Split };

struct ScheduledWork {
  Work work = Work::Forward;
  int64_t stage = 0, microbatch = 0;
  bool operator==(const ScheduledWork &) const = default;
};

/// "F2", "B2" (backward, or input gradient) or "W2" for microbatch 2.
std::string shortName(const ScheduledWork &work);
/// "the forward of stage 1, microbatch 2".
std::string longName(const ScheduledWork &work);

/// Which rank has which stage. A rank has one stage of each chunk; chunk c has the stages [c * ranks, (c + 1) * ranks).
///
///   Wrapped  every chunk runs from the first rank to the last:  rank 0: 0, P, 2P, ...   rank P - 1: P - 1, 2P - 1, ...
///   V        every second chunk runs back:                      rank 0: 0, 2P - 1, ...  rank P - 1: P - 1, P, ...
enum class Placement : uint8_t { Wrapped, V };

/// A pipeline schedule: an order without times, so that it is valid for any cost of the stages.
struct Schedule {
  std::string name;
  /// Ranks of the pipeline, stages on each rank, microbatches of a step; all at least 1.
  int64_t ranks = 1, chunks = 1, microbatches = 1;
  Placement placement = Placement::Wrapped;
  BackwardPass backward = BackwardPass::Joined;
  /// The works of each rank, in order.
  std::vector<std::vector<ScheduledWork>> order = {};

  int64_t stages() const { return ranks * chunks; }
  int64_t rankOf(int64_t stage) const;
  /// The stage of a chunk that is on `rank`.
  int64_t stageOf(int64_t rank, int64_t chunk) const;
  /// The number of works of each stage and microbatch.
  int64_t worksOfMicrobatch() const { return backward == BackwardPass::Split ? 3 : 2; }
};

/// The first defect of a schedule, or nullopt. Sizes must be at least 1; every rank must have every work of its stages
/// once and nothing else; there must be no circle of waits. A work waits for the one before it on its rank and for what
/// it reads: a forward for the forward of the stage before; a backward pass, or an input gradient, for the forward of
/// its stage and the same work of the stage after; a weight gradient for the input gradient of its stage.
std::optional<std::string> check(const Schedule &schedule);

/// The schedules that plans execute: those of namedSchedules (Named.h), and searchedSchedule.
const std::vector<std::string> &scheduleNames();
/// "auto": a schedule found by search.
extern const char *const searchedSchedule;

/// A schedule as items of a plan: the order of the segments forward and backward, or forward, input_gradient and
/// weight_gradient, of every rank of the pipeline.
std::vector<std::vector<ScheduleItem>> itemsOf(const Schedule &schedule);

/// A rank's order as text, "F0 F1 B0 W0": a letter, the microbatch, and ".1" for a work of the rank's second stage.
std::string orderText(const Schedule &schedule, int64_t rank);

/// Adds an order for the next rank of `schedule` from its text. The backward pass is split if an order has a W: B then
/// is an input gradient. Throws userError for words that are not works.
void addOrder(Schedule &schedule, const std::string &text);

/// The first work that comes after a work of the same kind and stage with a later microbatch; nullopt if there is none.
std::optional<ScheduledWork> descendingWork(const Schedule &schedule);

/// Renumbers microbatches so that works of a kind and stage take them in ascending order. Times and bytes do not grow:
/// the k-th work of a stage then reads the k-th result of the stage before or after, which arrives no later than the
/// result that it read before.
Schedule ascending(Schedule schedule);

} // namespace cleave::partitioner
