// The time and memory of a plan, composed of the costs of its layers.
#pragma once
#include "partitioner/pipeline/Simulate.h"
#include "partitioner/search/Ends.h"
#include "partitioner/search/LayerCosts.h"
#include "partitioner/search/Space.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A layer of the model for the search.
struct SearchLayer {
  std::string path;        ///< "" if no op belongs to a module
  std::string measured;    ///< the key of PlanCosts::layers
  bool parameters = false; ///< a stage needs at least one such layer
  double sentBytes = 0;    ///< of one sample, if a stage ends behind the layer
  bool ownRule = true;     ///< a rule of recomputation may name the layer alone
  int64_t tiedTo = -1;     ///< see LayerOutline
  double tiedShare = 0;    ///< the same
};

/// What messages and sums between positions of the pipeline take.
struct PipelineNetwork {
  /// Seconds of the messages from one position to another, of `bytes` for each group along axis tp.
  std::function<double(int64_t from, int64_t to, double bytes)> send;
  /// Seconds in which ranks of several positions sum a gradient of `bytes`, those of all groups at the same time.
  std::function<double(const std::vector<int64_t> &positions, double bytes)> sum = [](const std::vector<int64_t> &,
                                                                                      double) { return 0.0; };
  const SharedLinks &shared = noSharedLinks; ///< that messages take
  double metrics = 0;                        ///< seconds in which all ranks sum the metrics
};

struct Estimate {
  double seconds = 0; ///< of an iteration
  /// Bytes that the rank needs which comes closest to its device's memory or exceeds it most, and what it has.
  double bytes = 0, capacity = 0;
  std::vector<int64_t> lacking = {}; ///< positions on the pipeline whose ranks need more than they have
  bool fits() const { return bytes <= capacity; }
};

/// The part of the memory that plans may fill whose layers or recomputation were chosen to fill it: estimates have
/// errors.
constexpr double memoryMargin = 0.96;

/// The costs of the layers at each position of the pipeline; one entry: the same at all of them.
using PositionCosts = std::vector<const SiteCosts *>;

/// The position of the pipeline that runs each of so many layers. `begins`: the first layer of each stage.
std::vector<size_t> positionsOf(const Schedule &shape, const std::vector<size_t> &begins, size_t layers);

/// Estimates the plans of a group.
class Estimator {
public:
  /// `begins`: the first layer of each stage, if that is decided for plans with as many stages.
  Estimator(const std::vector<SearchLayer> &layers, const PlanGroup &group, PositionCosts positions,
            PipelineNetwork network, std::span<const size_t> begins = {});

  /// Gives some layers other costs: those at `positions` if `layers` has the layer.
  void mix(PositionCosts positions, std::vector<bool> layers);

  /// Cuts layers into stages whose longest is as short as possible; returns the first layer of each, or nothing if
  /// there are too few layers. Layers without parameters join the one before.
  std::vector<size_t> cut(const ScheduleChoice &schedule) const;
  /// The same, but with smaller messages where some layers send less than most; nothing where none does.
  std::vector<size_t> cutBySends(const ScheduleChoice &schedule) const;
  /// The shortest stages among the cuts that fit the memory; where a rank has several stages, each gets an equal part
  /// of it.
  std::vector<size_t> cutToFit(const ScheduleChoice &schedule) const;

  /// Moves one cut or several neighbouring ones by a unit, again and again, as long as the plan, which fits, fits with
  /// memoryMargin or no worse than before, and its estimate `now` gets shorter; returns the last estimate. Ends when
  /// `passes` are simulated, and subtracts those that were.
  Estimate moveCuts(const ScheduleChoice &schedule, std::vector<size_t> &begins, Estimate now, int64_t &passes) const;

  /// A lower bound of every schedule with this number and placement of stages, wherever they are cut, without the tail
  /// of the iteration.
  double lowest(const ScheduleChoice &schedule) const;
  /// `begins`: the first layer of each stage.
  Estimate of(const ScheduleChoice &schedule, const std::vector<size_t> &begins) const;
  /// The same, as if no messages shared links: a lower bound that is computed faster.
  Estimate atLeast(const ScheduleChoice &schedule, const std::vector<size_t> &begins) const;
  /// The same without the time, if plans may use `share` of the memory.
  Estimate memoryOf(const ScheduleChoice &schedule, const std::vector<size_t> &begins, double share = 1) const;
  /// Bytes that all positions need and have together, in any plan of the group, with one microbatch in flight.
  std::pair<double, double> leastBytes() const;

private:
  struct Memory {
    double fixed = 0, kept = 0, keptGradients = 0, transient = 0; ///< bytes; what is kept: of a microbatch
    double splitTransient = 0; ///< of a split backward pass, where the layer's keptGradients are kept already
  };
  struct Stage {
    StageCosts costs;
    size_t begin = 0, end = 0;  ///< layers
    double parameters = 0;      ///< bytes
    std::vector<Memory> memory; ///< on each kind of device of its position
  };
  struct Units {
    std::vector<size_t> first; ///< layer
    std::vector<size_t> of;    ///< unit of each layer
  };
  /// Of a layer; no costs if `use` does not have it.
  const LayerCost &costOf(size_t layer, const PlanCosts &use) const;
  const SiteCosts &siteAt(int64_t position) const;
  const SiteCosts &siteAt(int64_t position, size_t layer) const;
  const PlanCosts &costsAt(int64_t position) const { return siteAt(position).front().costs; }
  double sentBytes(size_t layer) const; ///< of one sample, if a stage ends behind it
  Units unitsOf() const;
  std::vector<double> secondsOf(const Units &units, const PlanCosts &use) const;
  double lowestOfAnyCuts(const Schedule &shape, const Units &units) const;
  Estimate of(const ScheduleChoice &schedule, const std::vector<size_t> &begins, const SharedLinks &shared) const;
  Estimate of(const Schedule &schedule, const std::vector<size_t> &begins, const SharedLinks &shared) const;
  std::vector<size_t> layersOf(const Units &units, const std::vector<size_t> &cuts) const;
  static void add(Memory &memory, const LayerCost &layer);
  std::vector<Stage> stagesOf(const Schedule &shape, const std::vector<size_t> &begins) const;
  std::vector<const LayerCost *> layersOf(const Stage &stage, int64_t position) const;
  /// Bytes of one kind of device of a position, if there is one microbatch: until a layer's backward pass it keeps
  /// what that reads, from then on the gradients of its parameters.
  double bytesOfOnlyMicrobatch(const Schedule &schedule, const std::vector<Stage> &stages, int64_t position,
                               size_t kind) const;
  /// The parameters of a position over those of the model.
  double shareOf(const Schedule &schedule, const std::vector<Stage> &stages, int64_t position) const;
  /// The costs of the stages, and when each may begin.
  std::vector<StageCosts> costsOf(const Schedule &schedule, const std::vector<Stage> &stages) const;
  /// Of all stages, if the passes run at `times`.
  std::vector<StagePasses> passesOf(const Schedule &schedule, const std::vector<Stage> &stages,
                                    const std::vector<std::vector<Span>> &times) const;
  /// For each position, the sums of gradients whose parameters other positions read, too.
  std::vector<std::vector<LateSum>> tiedSums(const Schedule &schedule, const std::vector<size_t> &begins,
                                             const std::vector<std::vector<Span>> &times) const;
  /// The seconds of an iteration whose passes run at `times`, with what follows them.
  double withEnds(const Schedule &schedule, const std::vector<size_t> &begins, const std::vector<Stage> &stages,
                  const std::vector<std::vector<Span>> &times) const;
  void addMemory(Estimate &estimate, const Schedule &schedule, const std::vector<Stage> &stages,
                 double share = 1) const;

  const std::vector<SearchLayer> &layers;
  const PlanGroup &group;
  const PositionCosts positions;
  PositionCosts mixedPositions;
  std::vector<bool> mixed; ///< layers; empty: none
  const PipelineNetwork network;
  const std::span<const size_t> begins;
  mutable std::vector<std::pair<const PlanCosts *, std::vector<const LayerCost *>>> resolved; ///< see costOf
};

} // namespace cleave::partitioner
