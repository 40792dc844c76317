// What a search is given, and the single plans that it finds.
#pragma once
#include "partitioner/search/Estimate.h"
#include "partitioner/search/Questions.h"
#include "runtime/base/Stopped.h"

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace cleave::partitioner {

/// A row of the space.
using PlanRow = std::tuple<SplitChoice, int64_t, AxisSizes, AxisOrder, std::string, int64_t>;
PlanRow rowOf(const PlanGroup &group, const ScheduleChoice &schedule);

struct SearchInput {
  Space space;
  std::vector<SearchLayer> layers;
  std::vector<size_t> begins; ///< the first layer of each stage, if that is decided
  double least = 0;           ///< seconds of the operations alone
  /// Bytes of a gradient's element when it is summed, over those of the gradient.
  double sumShare = 1;
  /// Bytes of a parameter's element when it is gathered, over those of the parameter.
  double gatherShare = 1;
  RankPlaces *places = nullptr;
  SplitCosts *costs = nullptr;
  std::set<PlanRow> excluded; ///< rows that are known to be refused
  Stops stops = {}; ///< whether to end early with the best plan so far. What the search calls may also throw Stopped
};

struct Candidate {
  PlanGroup group;
  ScheduleChoice schedule;
  Estimate estimate;
  std::vector<size_t> begins;           ///< the first layer of each stage
  std::vector<Recomputation> recompute; ///< of each layer
  std::vector<Recomputation> safer;     ///< if that may not fit, by an error of the estimate; or empty
};

/// No plan takes less: those of `simulated` take what that says, other candidates what is estimated, and the rest of
/// the space `others`.
double lowerBound(std::span<const Candidate> candidates, const std::map<PlanRow, double> &simulated, double others);

/// The recomputation that a group names, at every position of its pipeline.
std::vector<Recomputation> recomputeOf(const PlanGroup &group);

/// Costs at the positions of a group's pipeline, that are not those of a measured plan.
using Positions = std::vector<SiteCosts>;
PositionCosts pointersTo(const Positions &positions);

/// The costs at the positions of a group; nothing if the model cannot be split so.
std::optional<PositionCosts> measurePositions(const SearchInput &input, const PlanGroup &group,
                                              const std::vector<Recomputation> &recompute);

Estimator estimatorOf(const SearchInput &input, const PlanGroup &group, PositionCosts positions);

/// The recomputation of each layer, from that of the positions.
std::vector<Recomputation> recomputeOfLayers(const PlanGroup &group, const ScheduleChoice &schedule,
                                             const std::vector<size_t> &begins,
                                             const std::vector<Recomputation> &ofPositions, size_t layers);

/// Sets the recomputation of a plan's layers: those of `lighter` as `less` says for their position, or else as
/// `ofPositions` does, which is safer.
void setRecompute(Candidate &plan, const std::vector<Recomputation> &ofPositions,
                  const std::vector<Recomputation> &less, const std::vector<bool> &lighter);

/// Moves the cuts of a plan that fits as long as that saves time. `passes`: how many passes may be simulated for it;
/// those that were are subtracted.
void moveCuts(const SearchInput &input, Candidate &plan, int64_t &passes);

/// The estimate of one plan, whether it fits or not; nothing if the model cannot be split so.
std::optional<Candidate> estimatePlan(const SearchInput &input, const PlanGroup &group, const ScheduleChoice &schedule);

} // namespace cleave::partitioner
