// Searches for the schedule "auto" of a strategy. Compiling is behind ScheduleTrials, which tests answer.
#pragma once
#include "partitioner/search/TriedPlan.h"
#include "partitioner/simulate/MeasureStages.h"

#include <string>

namespace cleave::partitioner {

/// The stages of a strategy whose schedule runs one microbatch at a time.
struct TriedStages {
  MeasuredStages measured;
  std::string problem; ///< why that does not fit into memory; empty: it does
};

/// Makes plans of a strategy with other schedules.
class ScheduleTrials {
public:
  virtual ~ScheduleTrials() = default;
  /// Throws userError if the model cannot be cut into such stages.
  virtual TriedStages stages(const Decisions &strategy) = 0;
  /// Throws as stages().
  virtual TriedPlan tried(const Decisions &strategy) = 0;
};

/// The strategy `open`, whose schedule is open ("auto" without an order), with the fastest schedule that fits the
/// memory: a published schedule, or an order. Each rank runs as many stages as the strategy says; 0 means that one,
/// two, and two in a V are tried.
///
/// For each number of stages, a plan that runs one microbatch at a time gives the costs of the stages and the memory
/// left for microbatches (simulate/MeasureStages.h). Schedules are searched with these costs (pipeline/Search.h). Those
/// that are nearly as short as the shortest, published ones included, are tried, and the fastest is chosen.
///
/// Throws userError if the model cannot be cut into such stages, environmentError if no schedule fits.
Decisions findSchedule(const Decisions &open, ScheduleTrials &trials);

} // namespace cleave::partitioner
