// Searches for a schedule, given costs and memory: the schedule "auto".
#pragma once
#include "partitioner/pipeline/Simulate.h"

#include <optional>
#include <vector>

namespace cleave::partitioner {

/// The shortest schedule found for `shape` (its ranks, chunks, microbatches and placement; its order is ignored) in
/// which no rank ever holds more than its limit in bytes; of equally short ones, that with the lowest peak. nullopt if
/// there is none because a rank cannot hold one microbatch.
///
/// `stages`: the costs of every stage; `limits`: bytes for each rank, infinity for no limit. The result is never slower
/// than a named schedule of that shape within the limits. Candidates are the named schedules, and list scheduling
/// (Greedy.h) under a table of policies, tried on fewer microbatches first; local search (Improve.h) makes the best one
/// shorter. If a named schedule is the best, it keeps its name; any other one is called "auto", its backward pass is
/// split, and works of a kind and stage take microbatches in ascending order.
/// The effort is bounded: 16 stages and 1,024 microbatches take a few seconds. The same input gives the same schedule.
std::optional<Schedule> searchSchedule(const Schedule &shape, const std::vector<StageCosts> &stages,
                                       const std::vector<double> &limits);

/// The shapes that "auto" tries if the number of stages per rank is not given: one, two, and two in a V.
std::vector<Schedule> openShapes(int64_t ranks, int64_t microbatches);

/// One microbatch at a time, with a split backward pass: the slowest schedule of a shape, which needs the least memory.
Schedule oneAtATime(const Schedule &shape);

/// The first rank whose peak exceeds its limit; nullopt if there is none.
std::optional<size_t> rankOverLimit(const std::vector<double> &peaks, const std::vector<double> &limits);

/// The smallest number of bytes with which each rank can run a schedule of this shape: that of one microbatch at a
/// time.
std::vector<double> leastBytes(const Schedule &shape, const std::vector<StageCosts> &stages);

} // namespace cleave::partitioner
