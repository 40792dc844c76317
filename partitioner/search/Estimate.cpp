// Adds up the layers of each stage, and runs the schedule on them.
#include "partitioner/search/Estimate.h"

#include "partitioner/pipeline/Cuts.h"
#include "partitioner/search/Ends.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace cleave::partitioner {
namespace {

constexpr double milliseconds = 1e3;

const LayerCost &useOf(const SearchLayer &layer, const PlanCosts &use) {
  static const LayerCost none;
  const auto found = use.layers.find(layer.measured);
  return found == use.layers.end() ? none : found->second;
}

} // namespace

std::vector<size_t> positionsOf(const Schedule &shape, const std::vector<size_t> &begins, size_t layers) {
  std::vector<size_t> found;
  for (size_t i = 0, stage = 0; i < layers; ++i) {
    stage += stage + 1 < begins.size() && i == begins[stage + 1];
    found.push_back(static_cast<size_t>(shape.rankOf(static_cast<int64_t>(stage))));
  }
  return found;
}

Estimator::Estimator(const std::vector<SearchLayer> &layers, const PlanGroup &group, PositionCosts positions,
                     PipelineNetwork network, std::span<const size_t> begins)
    : layers(layers), group(group), positions(std::move(positions)), network(std::move(network)), begins(begins) {}

const SiteCosts &Estimator::siteAt(int64_t position) const {
  return *positions[positions.size() == 1 ? 0 : static_cast<size_t>(position)];
}

const SiteCosts &Estimator::siteAt(int64_t position, size_t layer) const {
  if (mixed.empty() || !mixed[layer])
    return siteAt(position);
  return *mixedPositions[mixedPositions.size() == 1 ? 0 : static_cast<size_t>(position)];
}

void Estimator::mix(PositionCosts other, std::vector<bool> layers) {
  mixedPositions = std::move(other), mixed = std::move(layers);
}

Estimator::Units Estimator::unitsOf() const {
  Units units;
  bool open = false; // the current unit has no parameters yet
  for (size_t i = 0; i < layers.size(); ++i) {
    if (units.first.empty() || (layers[i].parameters && !open))
      units.first.push_back(i), open = true;
    open &= !layers[i].parameters;
    units.of.push_back(units.first.size() - 1);
  }
  return units;
}

std::vector<double> Estimator::secondsOf(const Units &units, const PlanCosts &use) const {
  std::vector<double> seconds(units.first.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost &layer = useOf(layers[i], use);
    seconds[units.of[i]] += layer.forward + layer.backward;
  }
  return seconds;
}

std::vector<size_t> Estimator::layersOf(const Units &units, const std::vector<size_t> &cuts) const {
  std::vector<size_t> begins;
  for (const size_t unit : cuts)
    begins.push_back(units.first[unit]);
  return begins;
}

std::vector<size_t> Estimator::cut(const ScheduleChoice &schedule) const {
  const Schedule shape = schedule.shapeOf(group);
  const Units units = unitsOf();
  const auto stages = static_cast<size_t>(shape.stages());
  if (stages == begins.size())
    return {begins.begin(), begins.end()};
  if (stages > units.first.size())
    return {};
  if (positions.size() == 1)
    return layersOf(units, balancedCuts(secondsOf(units, costsAt(0)), stages));
  UnevenParts parts;
  for (int64_t position = 0; position < group.pipeline; ++position)
    parts.costs.push_back(secondsOf(units, costsAt(position)));
  for (int64_t s = 0; s < shape.stages(); ++s)
    parts.kindOf.push_back(static_cast<size_t>(shape.rankOf(s)));
  return layersOf(units, balancedCuts(parts));
}

void Estimator::add(Memory &memory, const LayerCost &layer) {
  memory.fixed += layer.parameters + layer.copies + layer.gradients + layer.states;
  memory.kept += layer.kept + layer.scores;
  memory.keptGradients += layer.keptGradients;
  memory.transient = std::max(memory.transient, layer.transient);
}

std::vector<size_t> Estimator::cutToFit(const ScheduleChoice &choice) const {
  const Schedule schedule = choice.of(group);
  const Units units = unitsOf();
  if (static_cast<size_t>(schedule.stages()) == begins.size())
    return {};
  if (static_cast<size_t>(schedule.stages()) > units.first.size())
    return {};
  // Microbatches that a stage keeps: as many as its rank does, divided among the rank's stages.
  const std::vector<StageCosts> even(static_cast<size_t>(schedule.stages()),
                                     {.forward = 1, .inputGradient = 1, .weightGradient = 1, .activationBytes = 1});
  const std::vector<double> flying = peakBytes(schedule, even);
  UnevenParts parts;
  for (size_t position = 0; position < positions.size(); ++position)
    parts.costs.push_back(secondsOf(units, costsAt(static_cast<int64_t>(position))));
  for (int64_t s = 0; s < schedule.stages(); ++s)
    parts.kindOf.push_back(positions.size() == 1 ? 0 : static_cast<size_t>(schedule.rankOf(s)));
  parts.earliest = [&](size_t part, size_t end) {
    const int64_t position = schedule.rankOf(static_cast<int64_t>(part));
    const auto shares = static_cast<double>(schedule.chunks);
    size_t first = 0;
    for (const KindCosts &kind : siteAt(position)) {
      Memory memory;
      const size_t last = end < units.first.size() ? units.first[end] : layers.size();
      size_t begin = end;
      for (size_t i = last; i-- > 0;) {
        add(memory, useOf(layers[i], kind.costs));
        if (memory.fixed + memory.kept * flying[static_cast<size_t>(position)] / shares + memory.transient >
            (kind.capacity - kind.costs.others) / shares)
          break;
        begin = units.first[units.of[i]] == i ? units.of[i] : begin;
      }
      first = std::max(first, begin);
    }
    return first;
  };
  return layersOf(units, balancedCuts(parts));
}

std::vector<Estimator::Stage> Estimator::stagesOf(const Schedule &shape, const std::vector<size_t> &begins) const {
  std::vector<Stage> stages(begins.size());
  const std::vector<size_t> positionOf = positionsOf(shape, begins, layers.size());
  std::set<std::pair<int64_t, int64_t>> copied; // position, owner of a parameter
  const auto rows = static_cast<double>(group.split.rowsOfRank());
  for (size_t s = 0; s < stages.size(); ++s) {
    Stage &stage = stages[s];
    const int64_t position = shape.rankOf(static_cast<int64_t>(s));
    stage.memory.resize(siteAt(position).size());
    const size_t end = s + 1 < stages.size() ? begins[s + 1] : layers.size();
    stage.begin = begins[s], stage.end = end;
    const bool split = s > 0 && shape.backward == BackwardPass::Split;
    for (size_t i = begins[s]; i < end; ++i) {
      const SiteCosts &site = siteAt(position, i);
      const LayerCost &layer = useOf(layers[i], site.front().costs);
      stage.costs.forward += milliseconds * layer.forward;
      stage.costs.inputGradient += milliseconds * (layer.backward - layer.weightGradient + (split ? layer.hidden : 0));
      stage.costs.weightGradient += milliseconds * layer.weightGradient;
      stage.parameters += layer.parameters;
      for (size_t k = 0; k < site.size(); ++k)
        add(stage.memory[k], useOf(layers[i], site[k].costs));
      const int64_t owner = layers[i].tiedTo;
      if (owner >= 0 && positionOf[static_cast<size_t>(owner)] != positionOf[i] &&
          copied.emplace(position, owner).second)
        for (size_t k = 0; k < site.size(); ++k) {
          const LayerCost &whole = useOf(layers[static_cast<size_t>(owner)], site[k].costs);
          stage.memory[k].fixed +=
              layers[i].tiedShare * (whole.parameters + whole.copies + whole.gradients + whole.states);
        }
    }
    const auto message = [&](int64_t neighbour, size_t lastLayer) {
      const int64_t other = shape.rankOf(neighbour);
      return other == position ? 0 : milliseconds * network.send(position, other, rows * layers[lastLayer].sentBytes);
    };
    if (s == 0 && shape.backward == BackwardPass::Split) { // no stage waits for gradients of its inputs: one pass
      stage.costs.weightGradient += std::exchange(stage.costs.inputGradient, 0);
      for (Memory &memory : stage.memory)
        memory.keptGradients = 0;
    }
    if (s + 1 < stages.size())
      stage.costs.send = message(static_cast<int64_t>(s) + 1, end - 1);
    if (s > 0)
      stage.costs.sendBack = message(static_cast<int64_t>(s) - 1, begins[s] - 1);
  }
  return stages;
}

std::vector<StagePasses> Estimator::passesOf(const Schedule &schedule, const std::vector<Stage> &stages,
                                             const std::vector<std::vector<Span>> &times) const {
  std::vector<StagePasses> passes(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    passes[s].split = schedule.backward == BackwardPass::Split && s > 0;
    for (size_t i = stages[s].begin; i < stages[s].end; ++i)
      passes[s].layers.push_back(&useOf(layers[i], siteAt(schedule.rankOf(static_cast<int64_t>(s)), i).front().costs));
  }
  for (size_t rank = 0; rank < times.size(); ++rank)
    for (size_t w = times[rank].size(); w-- > 0;) { // so that the first pass is found last
      const ScheduledWork &work = schedule.order[rank][w];
      const Span &time = times[rank][w];
      StagePasses &own = passes[static_cast<size_t>(work.stage)];
      if (work.work == Work::Forward)
        own.firstForward = time.begin / milliseconds;
      else if (work.work == Work::InputGradient)
        own.lastInputsEnd = std::max(own.lastInputsEnd, time.end / milliseconds);
      else
        own.lastWeights = std::max(own.lastWeights, time.begin / milliseconds);
    }
  return passes;
}

/// When the last pass of a rank ends, in seconds.
static double endOf(const std::vector<Span> &rank) { return rank.empty() ? 0 : rank.back().end / milliseconds; }

std::vector<std::vector<LateSum>> Estimator::tiedSums(const Schedule &schedule, const std::vector<size_t> &begins,
                                                      const std::vector<std::vector<Span>> &times) const {
  struct Tied {
    std::set<int64_t> readers; ///< positions
    double share = 0;          ///< of the owner's gradients
  };
  std::map<size_t, Tied> byOwner;
  const std::vector<size_t> positionOf = positionsOf(schedule, begins, layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].tiedTo >= 0) {
      const auto owner = static_cast<size_t>(layers[i].tiedTo);
      Tied &tied = byOwner[owner];
      tied.readers.insert({static_cast<int64_t>(positionOf[owner]), static_cast<int64_t>(positionOf[i])});
      tied.share = std::max(tied.share, layers[i].tiedShare);
    }
  std::vector<std::vector<LateSum>> sums(times.size());
  for (const auto &[owner, tied] : byOwner) {
    if (tied.readers.size() == 1)
      continue;
    const std::vector<int64_t> readers(tied.readers.begin(), tied.readers.end());
    double ready = 0;
    for (const int64_t position : readers)
      ready = std::max(ready, endOf(times[static_cast<size_t>(position)]));
    const double bytes = tied.share * useOf(layers[owner], costsAt(readers.front())).gradients;
    const LateSum sum{network.sum(readers, bytes), ready};
    for (const int64_t position : readers)
      sums[static_cast<size_t>(position)].push_back(sum);
  }
  return sums;
}

double Estimator::withEnds(const Schedule &schedule, const std::vector<size_t> &begins,
                           const std::vector<Stage> &stages, const std::vector<std::vector<Span>> &times) const {
  const std::vector<StagePasses> passes = passesOf(schedule, stages, times);
  const std::vector<std::vector<LateSum>> tied = tiedSums(schedule, begins, times);
  double delay = 0, finish = 0;
  for (int64_t position = 0; position < group.pipeline; ++position) {
    const PlanCosts &use = costsAt(position);
    std::vector<StagePasses> own;
    double parameters = 0;
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk) {
      const auto stage = static_cast<size_t>(schedule.stageOf(position, chunk));
      own.push_back(passes[stage]);
      parameters += stages[stage].parameters;
    }
    const double scale = parameters / std::max(use.total.parameters, 1.0);
    delay = std::max(delay, delayOfBegin(use, own, scale));
    finish = std::max(finish, endOfUpdate(use, own, scale, endOf(times[static_cast<size_t>(position)]),
                                          tied[static_cast<size_t>(position)]));
  }
  return delay + finish;
}

double Estimator::lowest(const ScheduleChoice &schedule) const {
  const std::vector<size_t> begins = cut(schedule);
  if (begins.empty())
    return INFINITY;
  const Schedule shape = schedule.shapeOf(group);
  std::vector<StageCosts> costs;
  std::vector<double> work(static_cast<size_t>(group.pipeline));
  for (const Stage &stage : stagesOf(shape, begins)) {
    work[static_cast<size_t>(shape.rankOf(static_cast<int64_t>(costs.size())))] += stage.costs.work();
    costs.push_back(stage.costs);
  }
  if (positions.size() == 1)
    return lowestStep(shape, costs) / milliseconds;
  // Other cuts have longer stages, but may let the busiest one begin earlier.
  return (shape.chunks > 1 ? 0 : std::ranges::max(work) * static_cast<double>(group.microbatches)) / milliseconds;
}

std::pair<double, double> Estimator::leastBytes() const {
  double bytes = 0, capacity = 0;
  for (const SearchLayer &layer : layers) {
    double least = INFINITY;
    for (const SiteCosts *site : positions)
      for (const KindCosts &kind : *site) {
        const LayerCost &cost = useOf(layer, kind.costs);
        least = std::min(least, cost.parameters + cost.copies + cost.gradients + cost.states + cost.kept + cost.scores);
      }
    bytes += least;
  }
  for (int64_t position = 0; position < group.pipeline; ++position) {
    const KindCosts &smallest = *std::ranges::min_element(siteAt(position), {}, &KindCosts::capacity);
    capacity += smallest.capacity, bytes += smallest.costs.others;
  }
  return {bytes, capacity};
}

void Estimator::addMemory(Estimate &estimate, const Schedule &schedule, const std::vector<Stage> &stages,
                          double share) const {
  size_t kinds = 0;
  for (const SiteCosts *site : positions)
    kinds = std::max(kinds, site->size());
  std::set<int64_t> lacking;
  for (size_t k = 0; k < kinds; ++k) {
    std::vector<StageCosts> costs;
    const auto of = [&](const auto &all) -> const auto & { return all[std::min(k, all.size() - 1)]; };
    for (const Stage &stage : stages) {
      costs.push_back(stage.costs);
      costs.back().activationBytes = of(stage.memory).kept;
      if (schedule.backward == BackwardPass::Split)
        costs.back().gradientBytes = of(stage.memory).keptGradients;
    }
    const std::vector<double> peaks = peakBytes(schedule, costs);
    for (int64_t position = 0; position < group.pipeline; ++position) {
      double fixed = 0, transient = 0;
      for (size_t s = 0; s < stages.size(); ++s)
        if (schedule.rankOf(static_cast<int64_t>(s)) == position) {
          fixed += of(stages[s].memory).fixed;
          transient = std::max(transient, of(stages[s].memory).transient);
        }
      const KindCosts &kind = of(siteAt(position));
      const double bytes = fixed + peaks[static_cast<size_t>(position)] + transient + kind.costs.others;
      const double capacity = share * kind.capacity;
      if (bytes - capacity > estimate.bytes - estimate.capacity)
        estimate.bytes = bytes, estimate.capacity = capacity;
      if (bytes > capacity)
        lacking.insert(position);
    }
  }
  estimate.lacking.assign(lacking.begin(), lacking.end());
}

Estimate Estimator::memoryOf(const ScheduleChoice &choice, const std::vector<size_t> &begins, double share) const {
  Estimate estimate{INFINITY, -INFINITY, INFINITY};
  const Schedule schedule = choice.of(group);
  addMemory(estimate, schedule, stagesOf(schedule, begins), share);
  return estimate;
}

Estimate Estimator::of(const ScheduleChoice &choice, const std::vector<size_t> &begins) const {
  Estimate estimate{INFINITY, -INFINITY, INFINITY};
  if (begins.empty())
    return {INFINITY, INFINITY, 0};
  const Schedule schedule = choice.of(group);
  const std::vector<Stage> stages = stagesOf(schedule, begins);
  std::vector<StageCosts> costs;
  for (const Stage &stage : stages)
    costs.push_back(stage.costs);
  const auto times = timesOf(schedule, costs, network.shared);
  if (!times)
    return {INFINITY, INFINITY, 0};
  estimate.seconds = withEnds(schedule, begins, stages, *times);
  addMemory(estimate, schedule, stages);
  return estimate;
}

} // namespace cleave::partitioner
