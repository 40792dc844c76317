// Adds up the layers of each stage, and runs the schedule on them.
#include "partitioner/search/Estimate.h"

#include "partitioner/pipeline/Cuts.h"
#include "partitioner/schedule/Named.h"

#include <algorithm>

namespace cleave::partitioner {
namespace {

constexpr double milliseconds = 1e3;

const LayerCost &useOf(const SearchLayer &layer, const PlanCosts &use) {
  static const LayerCost none;
  const auto found = use.layers.find(layer.measured);
  return found == use.layers.end() ? none : found->second;
}

} // namespace

std::vector<size_t> cutStages(const std::vector<SearchLayer> &layers, const PlanCosts &use, size_t stages) {
  std::vector<double> costs;
  std::vector<size_t> first; // layer of each unit
  bool open = false;         // the current unit has no parameters yet
  for (size_t i = 0; i < layers.size(); ++i) {
    if (costs.empty() || (layers[i].parameters && !open)) {
      costs.push_back(0), first.push_back(i);
      open = true;
    }
    open &= !layers[i].parameters;
    const LayerCost &layer = useOf(layers[i], use);
    costs.back() += layer.forward + layer.backward;
  }
  std::vector<size_t> begins;
  if (stages <= costs.size())
    for (const size_t unit : balancedCuts(costs, stages))
      begins.push_back(first[unit]);
  return begins;
}

Estimator::Estimator(const std::vector<SearchLayer> &layers, const PlanGroup &group, const PlanCosts &use,
                     double secondsPerByte)
    : layers(layers), group(group), use(use), secondsPerByte(secondsPerByte) {}

std::vector<Estimator::Stage> Estimator::stagesOf(const std::vector<size_t> &begins) const {
  std::vector<Stage> stages(begins.size());
  const auto rows = static_cast<double>(group.split.rowsOfRank());
  for (size_t s = 0; s < stages.size(); ++s) {
    Stage &stage = stages[s];
    const size_t end = s + 1 < stages.size() ? begins[s + 1] : layers.size();
    for (size_t i = begins[s]; i < end; ++i) {
      const LayerCost &layer = useOf(layers[i], use);
      stage.costs.forward += milliseconds * layer.forward;
      stage.costs.inputGradient += milliseconds * layer.backward / 2;
      stage.costs.weightGradient += milliseconds * layer.backward / 2;
      stage.costs.activationBytes += layer.kept + layer.scores;
      stage.fixed += layer.parameters + layer.copies + layer.gradients + layer.states;
      stage.transient = std::max(stage.transient, layer.transient);
      stage.parameters += layer.parameters;
    }
    if (s + 1 < stages.size())
      stage.costs.send = milliseconds * secondsPerByte * rows * layers[end - 1].sentBytes;
  }
  return stages;
}

double Estimator::exposedEnds(double bytes, double forward, double backward) const {
  // What precedes and follows the passes grows with the parameters of a rank.
  const double scale = bytes / std::max(use.total.parameters, 1.0);
  const auto exposed = [&](double seconds, int64_t count, double hiding) {
    if (!use.hides)
      return seconds * scale;
    const double one = count ? seconds / static_cast<double>(count) : 0; // the first gather, the last sum
    return std::max(one, seconds * scale - hiding);
  };
  return (use.beginWork + use.endWork) * scale + exposed(use.gathers, use.gatherCount, forward) +
         exposed(use.sums, use.sumCount, backward);
}

double Estimator::lowest(int64_t chunks) const {
  const std::vector<size_t> begins = cutStages(layers, use, static_cast<size_t>(group.pipeline * chunks));
  if (begins.empty())
    return INFINITY;
  std::vector<StageCosts> costs;
  for (const Stage &stage : stagesOf(begins))
    costs.push_back(stage.costs);
  const Schedule shape{"", group.pipeline, chunks, group.microbatches};
  return lowestStep(shape, costs) / milliseconds;
}

double Estimator::leastBytes() const {
  double bytes = 0;
  for (const SearchLayer &layer : layers) {
    const LayerCost &cost = useOf(layer, use);
    bytes += cost.parameters + cost.copies + cost.gradients + cost.states + cost.kept + cost.scores;
  }
  return bytes / static_cast<double>(group.pipeline) + use.others;
}

Estimate Estimator::of(const ScheduleChoice &choice) const {
  const Schedule schedule = namedSchedule(choice.name, group.pipeline, choice.chunks, group.microbatches);
  const std::vector<size_t> begins = cutStages(layers, use, static_cast<size_t>(schedule.stages()));
  Estimate estimate{INFINITY, INFINITY, INFINITY};
  if (begins.empty())
    return estimate;
  const std::vector<Stage> stages = stagesOf(begins);
  std::vector<StageCosts> costs;
  for (const Stage &stage : stages)
    costs.push_back(stage.costs);
  const auto times = timesOf(schedule, costs);
  if (!times)
    return estimate;
  const std::vector<double> peaks = peakBytes(schedule, costs);
  estimate = {0, lowestStep(schedule, costs) / milliseconds, 0};
  for (size_t position = 0; position < peaks.size(); ++position) {
    double parameters = 0, fixed = 0, transient = 0, forward = 0, backward = 0; // of one microbatch
    for (size_t s = 0; s < stages.size(); ++s)
      if (schedule.rankOf(static_cast<int64_t>(s)) == static_cast<int64_t>(position)) {
        parameters += stages[s].parameters, fixed += stages[s].fixed;
        forward += stages[s].costs.forward / milliseconds;
        backward += (stages[s].costs.inputGradient + stages[s].costs.weightGradient) / milliseconds;
        transient = std::max(transient, stages[s].transient);
      }
    const double end = (*times)[position].empty() ? 0 : (*times)[position].back().end / milliseconds;
    estimate.seconds = std::max(estimate.seconds, end + exposedEnds(parameters, forward, backward));
    estimate.bytes = std::max(estimate.bytes, fixed + peaks[position] + transient + use.others);
  }
  return estimate;
}

} // namespace cleave::partitioner
