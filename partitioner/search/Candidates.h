// What a search is given, and the single plans that it finds.
#pragma once
#include "partitioner/search/Estimate.h"
#include "partitioner/search/Sites.h"
#include "runtime/base/Stopped.h"

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace cleave::partitioner {

struct SearchInput {
  SpaceRequest request;
  std::vector<SearchLayer> layers;
  std::vector<size_t> begins; ///< the first layer of each stage, if that is decided
  double least = 0;           ///< seconds of the operations alone
  /// See Sites.
  std::function<double(const PlanGroup &, int64_t from, int64_t to, double bytes)> sendSeconds;
  /// See Sites.
  std::function<double(const PlanGroup &, double bytes, bool scatters)> sumSeconds = [](const PlanGroup &, double,
                                                                                        bool) { return 0.0; };
  /// See Sites.
  std::function<double(const PlanGroup &, const std::vector<int64_t> &positions, double bytes)> tiedSeconds =
      [](const PlanGroup &, const std::vector<int64_t> &, double) { return 0.0; };
  double metricsSeconds = 0; ///< in which all ranks sum the metrics
  /// Bytes of a gradient's element when it is summed, over those of the gradient.
  double sumShare = 1;
  /// Bytes of a parameter's element when it is gathered, over those of the parameter.
  double gatherShare = 1;
  /// See Sites; by default messages share no links.
  std::function<const SharedLinks &(const PlanGroup &)> sharedLinks = [](const PlanGroup &) -> const SharedLinks & {
    return noSharedLinks;
  };
  /// Where the ranks of a group lie, and those of one group along axis tp of so many ranks (see Sites). By default all
  /// devices are of one kind.
  std::function<std::vector<Site>(const PlanGroup &)> positions = [](const PlanGroup &) {
    return std::vector<Site>{0};
  };
  std::function<std::vector<std::vector<Site>>(const PlanGroup &, int64_t tensor)> parts =
      [](const PlanGroup &, int64_t) { return std::vector<std::vector<Site>>{{0}}; };
  /// Whether the model can have so many rows; its code may fix their number.
  std::function<bool(int64_t rows)> takesRows = [](int64_t) { return true; };
  /// The costs of the layers under a split at a site; null if the model cannot be split so.
  std::function<const SiteCosts *(const SplitChoice &, Site)> measure;
  /// What is compiled to measure a split; splits with the same one are measured at the cost of one.
  std::function<SplitChoice(const SplitChoice &)> trialOf = [](const SplitChoice &split) { return split; };
  /// Rows that are known to be refused.
  std::function<bool(const PlanGroup &, const ScheduleChoice &)> excludes =
      [](const PlanGroup &, const ScheduleChoice &) { return false; };
  /// If set: called before measure() with several that are probably needed next, to be measured at the same time.
  std::function<void(const std::vector<std::pair<SplitChoice, Site>> &)> prepare = {};
  /// Whether to end early with the best plan so far. What the search calls may also throw Stopped.
  Stops stops = [] { return false; };
};

struct Candidate {
  PlanGroup group;
  ScheduleChoice schedule;
  Estimate estimate;
  std::vector<size_t> begins;           ///< the first layer of each stage
  std::vector<Recomputation> recompute; ///< of each layer
  std::vector<Recomputation> safer;     ///< if that may not fit, by an error of the estimate; or empty
  bool byOp = false;                    ///< with the shardings of single ops that the solver found
};

/// A row of the space, with default or (byOp) solved shardings.
using PlanRow = std::tuple<SplitChoice, int64_t, AxisSizes, AxisOrder, std::string, int64_t, bool>;
PlanRow rowOf(const PlanGroup &group, const ScheduleChoice &schedule, bool byOp = false);

/// No plan takes less: those of `simulated` take what that says, other candidates what is estimated, and the rest of
/// the space `others`.
double lowerBound(std::span<const Candidate> candidates, const std::map<PlanRow, double> &simulated, double others);

/// The layers of a model with what they send in solved shardings, in which a rank may have more of a value.
std::vector<SearchLayer> withSent(std::vector<SearchLayer> layers, const PlanCosts &usual, const PlanCosts &solved);

/// One rule for all layers, and one for each layer that recomputes otherwise.
std::vector<RecomputeRule> rulesOf(const std::vector<SearchLayer> &layers, const std::vector<Recomputation> &recompute);

/// The layers of each stage as a strategy lists them, from the first layer of each.
std::vector<std::vector<std::string>> stageLists(const std::vector<SearchLayer> &layers,
                                                 const std::vector<size_t> &begins);

/// The recomputation that a group names, at every position of its pipeline.
std::vector<Recomputation> recomputeOf(const PlanGroup &group);

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

/// The plans to compile: the fastest of `candidates`, which are sorted by time, at most `most`. At most two have the
/// same mesh if there are others, so that an error of the estimate matters less. Of those that an option does not
/// change (sequence parallelism of a model without sequences) only the first is taken. One of the first `certain` at
/// least has the default shardings, which every model can follow.
std::vector<Candidate> finalistsOf(const std::vector<Candidate> &candidates, size_t most, size_t certain);

/// The estimate of one plan, whether it fits or not; nothing if the model cannot be split so.
std::optional<Candidate> estimatePlan(const SearchInput &input, const PlanGroup &group, const ScheduleChoice &schedule);

} // namespace cleave::partitioner
