// Adds up the layers of each stage, and runs the schedule on them.
#include "partitioner/search/Estimate.h"

#include "partitioner/pipeline/Cuts.h"
#include "partitioner/search/Ends.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

namespace cleave::partitioner {
namespace {

constexpr double milliseconds = 1e3;

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

const LayerCost &Estimator::costOf(size_t layer, const PlanCosts &use) const {
  auto found = std::ranges::find(resolved, &use, [](const auto &one) { return one.first; });
  if (found == resolved.end()) {
    static const LayerCost none;
    found = resolved.insert(found, {&use, {}});
    for (const SearchLayer &one : layers) {
      const auto cost = use.layers.find(one.measured);
      found->second.push_back(cost == use.layers.end() ? &none : &cost->second);
    }
  }
  return *found->second[layer];
}

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

double Estimator::sentBytes(size_t layer) const {
  return layers[layer].sentBytes * costOf(layer, costsAt(0)).sentShare;
}

std::vector<double> Estimator::secondsOf(const Units &units, const PlanCosts &use) const {
  std::vector<double> seconds(units.first.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost &layer = costOf(i, use);
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

std::vector<size_t> Estimator::cutBySends(const ScheduleChoice &schedule) const {
  const Schedule shape = schedule.shapeOf(group);
  const Units units = unitsOf();
  const auto stages = static_cast<size_t>(shape.stages());
  if (positions.size() > 1 || stages == 1 || stages == begins.size() || stages > units.first.size())
    return {};
  const auto sentTo = [&](size_t unit) { return sentBytes(units.first[unit] - 1); };
  std::vector<double> sent;
  for (size_t unit = 1; unit < units.first.size(); ++unit)
    sent.push_back(sentTo(unit));
  std::ranges::sort(sent);
  if (sent.front() == sent[sent.size() / 2]) // no boundary sends less than most of them
    return {};
  const auto sends = [&](size_t stage, size_t unit) {
    const int64_t from = shape.rankOf(static_cast<int64_t>(stage) - 1), to = shape.rankOf(static_cast<int64_t>(stage));
    const double bytes = static_cast<double>(group.split.rowsOfRank()) * sentTo(unit);
    return from == to ? 0 : network.send(from, to, bytes) + network.send(to, from, bytes);
  };
  return layersOf(units,
                  cutsBySends(secondsOf(units, costsAt(0)), stages, sends, static_cast<double>(group.microbatches)));
}

void Estimator::add(Memory &memory, const LayerCost &layer) {
  memory.fixed += layer.parameters + layer.copies + layer.gradients + layer.states;
  memory.kept += layer.kept + layer.scores;
  memory.keptGradients += layer.keptGradients;
  memory.transient = std::max(memory.transient, layer.transient);
  memory.splitTransient = std::max(memory.splitTransient, layer.transient - std::max(0.0, layer.keptGradients));
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
        add(memory, costOf(i, kind.costs));
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
      const LayerCost &layer = costOf(i, site.front().costs);
      stage.costs.forward += milliseconds * layer.forward;
      stage.costs.inputGradient += milliseconds * (layer.backward - layer.weightGradient + (split ? layer.hidden : 0));
      stage.costs.weightGradient += milliseconds * layer.weightGradient;
      stage.parameters += layer.parameters;
      for (size_t k = 0; k < site.size(); ++k)
        add(stage.memory[k], costOf(i, site[k].costs));
      const int64_t owner = layers[i].tiedTo;
      if (owner >= 0 && positionOf[static_cast<size_t>(owner)] != positionOf[i] &&
          copied.emplace(position, owner).second)
        for (size_t k = 0; k < site.size(); ++k) {
          const LayerCost &whole = costOf(static_cast<size_t>(owner), site[k].costs);
          stage.memory[k].fixed +=
              layers[i].tiedShare * (whole.parameters + whole.copies + whole.gradients + whole.states);
        }
    }
    const auto message = [&](int64_t neighbour, size_t lastLayer) {
      const int64_t other = shape.rankOf(neighbour);
      return other == position ? 0 : milliseconds * network.send(position, other, rows * sentBytes(lastLayer));
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

std::vector<const LayerCost *> Estimator::layersOf(const Stage &stage, int64_t position) const {
  std::vector<const LayerCost *> found;
  for (size_t i = stage.begin; i < stage.end; ++i)
    found.push_back(&costOf(i, siteAt(position, i).front().costs));
  return found;
}

double Estimator::shareOf(const Schedule &schedule, const std::vector<Stage> &stages, int64_t position) const {
  double parameters = 0;
  for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
    parameters += stages[static_cast<size_t>(schedule.stageOf(position, chunk))].parameters;
  return parameters / std::max(costsAt(position).total.parameters, 1.0);
}

std::vector<StageCosts> Estimator::costsOf(const Schedule &schedule, const std::vector<Stage> &stages) const {
  std::vector<StageCosts> costs;
  for (const Stage &stage : stages)
    costs.push_back(stage.costs);
  for (int64_t position = 0; position < group.pipeline; ++position) {
    std::vector<std::vector<const LayerCost *>> own;
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
      own.push_back(layersOf(stages[static_cast<size_t>(schedule.stageOf(position, chunk))], position));
    const std::vector<double> ready =
        readyTimes(costsAt(position), own, shareOf(schedule, stages, position), group.microbatches == 1);
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
      costs[static_cast<size_t>(schedule.stageOf(position, chunk))].ready =
          milliseconds * ready[static_cast<size_t>(chunk)];
  }
  return costs;
}

std::vector<StagePasses> Estimator::passesOf(const Schedule &schedule, const std::vector<Stage> &stages,
                                             const std::vector<std::vector<Span>> &times) const {
  std::vector<StagePasses> passes(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    passes[s].split = schedule.backward == BackwardPass::Split && s > 0;
    passes[s].layers = layersOf(stages[s], schedule.rankOf(static_cast<int64_t>(s)));
  }
  for (size_t rank = 0; rank < times.size(); ++rank)
    for (size_t w = 0; w < times[rank].size(); ++w) {
      const ScheduledWork &work = schedule.order[rank][w];
      const Span &time = times[rank][w];
      StagePasses &own = passes[static_cast<size_t>(work.stage)];
      if (work.work == Work::InputGradient)
        own.lastInputsEnd = std::max(own.lastInputsEnd, time.end / milliseconds);
      else if (work.work != Work::Forward)
        own.lastWeights = std::max(own.lastWeights, time.begin / milliseconds);
    }
  return passes;
}

/// When the last pass of a rank ends, in seconds.
static double endOf(const std::vector<Span> &rank) { return rank.empty() ? 0 : rank.back().end / milliseconds; }

/// When the last stage has the loss of the last microbatch, in seconds.
static double lastLoss(const Schedule &schedule, const std::vector<std::vector<Span>> &times) {
  const auto rank = static_cast<size_t>(schedule.rankOf(schedule.stages() - 1));
  double last = 0;
  for (size_t w = 0; w < times[rank].size(); ++w)
    if (const ScheduledWork &work = schedule.order[rank][w];
        work.work == Work::Forward && work.stage == schedule.stages() - 1)
      last = std::max(last, times[rank][w].end / milliseconds);
  return last;
}

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
    const double bytes = tied.share * costOf(owner, costsAt(readers.front())).gradients;
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
  // The update divides by the number of rows, which all ranks sum with the metrics, after their gradients: once the
  // last rank has ended its sums, and the last stage has the loss of the last microbatch.
  double summed = 0, metricsBegin = lastLoss(schedule, times), metrics = group.pipeline > 1 ? network.metrics : 0,
         others = 0, update = 0;
  for (int64_t position = 0; position < group.pipeline; ++position) {
    const PlanCosts &use = costsAt(position);
    std::vector<StagePasses> own;
    for (int64_t chunk = 0; chunk < schedule.chunks; ++chunk)
      own.push_back(passes[static_cast<size_t>(schedule.stageOf(position, chunk))]);
    const auto rank = static_cast<size_t>(position);
    const double end = endOf(times[rank]), sums = endOfSums(use, own, end, tied[rank]);
    summed = std::max({summed, end, sums});
    metricsBegin = std::max(metricsBegin, sums);
    metrics = std::max(metrics, use.metrics);
    others = std::max(others, use.endOthers);
    update = std::max(update, use.endWork * shareOf(schedule, stages, position));
  }
  return std::max(summed, metricsBegin + metrics) + others + update;
}

double Estimator::lowest(const ScheduleChoice &schedule) const {
  const Schedule shape = schedule.shapeOf(group);
  const Units units = unitsOf();
  const auto stages = static_cast<size_t>(shape.stages());
  if (stages != begins.size() && positions.size() == 1)
    return stages > units.first.size() ? INFINITY : lowestOfAnyCuts(shape, units);
  const std::vector<size_t> balanced = cut(schedule);
  if (balanced.empty())
    return INFINITY;
  std::vector<StageCosts> costs;
  double most = 0;
  for (const Stage &stage : stagesOf(shape, balanced)) {
    most = std::max(most, stage.costs.work());
    costs.push_back(stage.costs);
  }
  if (stages == begins.size() && positions.size() == 1)
    return lowestStep(shape, costs) / milliseconds;
  // Other cuts have longer stages, but may let the busiest one begin earlier.
  return (shape.chunks > 1 ? 0 : most * static_cast<double>(group.microbatches)) / milliseconds;
}

double Estimator::lowestOfAnyCuts(const Schedule &shape, const Units &units) const {
  const size_t count = units.first.size(), stages = static_cast<size_t>(shape.stages()),
               ranks = static_cast<size_t>(group.pipeline);
  const auto microbatches = static_cast<double>(group.microbatches);
  const bool split = shape.backward == BackwardPass::Split;
  // Sums up to each unit: its passes in the first stage and in another one; forward passes, and backward passes that
  // other stages wait for at the end. A split one's are not: gradients of weights may follow them.
  std::vector<double> first(count + 1), other(count + 1), forward(count + 1), back(count + 1);
  double path = 0, exposed = 0, leastSent = INFINITY;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost &layer = costOf(i, costsAt(0));
    const size_t unit = units.of[i];
    first[unit + 1] += layer.forward + layer.backward;
    other[unit + 1] += layer.forward + layer.backward + (split ? layer.hidden : 0);
    forward[unit + 1] += layer.forward;
    back[unit + 1] += split ? 0 : layer.backward;
    path += layer.forward + layer.backward - (split && unit > 0 ? layer.weightGradient : 0);
    if (i + 1 < layers.size())
      leastSent = std::min(leastSent, sentBytes(i));
  }
  const std::vector<double> works(first.begin() + 1, first.end());
  for (size_t unit = 0; unit < count; ++unit) {
    if (works[unit] > 0)
      exposed = std::max(exposed, other[unit + 1] / works[unit] - 1);
    for (std::vector<double> *sums : {&first, &other, &forward, &back})
      (*sums)[unit + 1] += (*sums)[unit];
  }
  // Up to each stage: messages of the first microbatch to it, and of the last one from it.
  std::vector<double> sent(stages);
  const double bytes = static_cast<double>(group.split.rowsOfRank()) * leastSent;
  for (size_t s = 1; s < stages; ++s) {
    const int64_t from = shape.rankOf(static_cast<int64_t>(s) - 1), to = shape.rankOf(static_cast<int64_t>(s));
    const double there = from == to ? 0 : network.send(from, to, bytes),
                 again = from == to ? 0 : network.send(to, from, bytes);
    sent[s] = sent[s - 1] + there + (split ? 0 : again);
    path += there + again;
  }
  // A rank begins when the first microbatch has passed the stages before, which have a unit each at least. All ranks
  // together: the first stage, which exposes nothing, takes at most the bound itself.
  double sum = other.back() * microbatches;
  for (size_t rank = 0; rank < ranks; ++rank)
    sum += forward[rank] + back[rank] + sent[rank];
  double low = std::max({path, sum / (static_cast<double>(ranks) + exposed), 1e-12});
  if (shape.chunks > 1) { // of the longest units, some rank has its share
    std::vector<double> longest = works;
    std::ranges::sort(longest, std::greater());
    for (size_t i = 0; i < count; ++i)
      low = std::max(low, static_cast<double>(i / ranks + 1) * longest[i] * microbatches);
    return low;
  }
  // The longer a stage is, the later the next one may end, as a unit takes no less than it delays: stages that all take
  // as much as they can leave the least for the last one.
  const auto possible = [&](double seconds) {
    size_t begin = 0;
    for (size_t s = 0; s < stages; ++s) {
      const std::vector<double> &sums = s == 0 ? first : other;
      const double end = sums[begin] + (seconds - forward[begin] - back[begin] - sent[s]) / microbatches;
      const auto last = std::upper_bound(sums.begin(), sums.end() - static_cast<std::ptrdiff_t>(stages - s - 1), end);
      if (last - sums.begin() < static_cast<std::ptrdiff_t>(begin) + 2)
        return false;
      begin = static_cast<size_t>(last - sums.begin()) - 1;
    }
    return begin == count;
  };
  double high = low;
  while (!possible(high))
    low = high, high *= 2;
  while (high - low > 1e-4 * low)
    (possible(std::midpoint(low, high)) ? high : low) = std::midpoint(low, high);
  return low;
}

std::pair<double, double> Estimator::leastBytes() const {
  const auto leastOf = [&](auto &&bytesOf) {
    double sum = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      double least = INFINITY;
      for (const SiteCosts *site : positions)
        for (const KindCosts &kind : *site)
          least = std::min<double>(least, bytesOf(costOf(i, kind.costs)));
      sum += least;
    }
    return sum;
  };
  double bytes = leastOf([](const LayerCost &cost) { return cost.parameters + cost.states; }), capacity = 0;
  const double kept = leastOf([](const LayerCost &cost) { return cost.copies + cost.kept + cost.scores; }),
               gradients = leastOf(std::mem_fn(&LayerCost::gradients));
  bytes += group.microbatches == 1 ? std::max(kept, gradients) : kept + gradients;
  for (int64_t position = 0; position < group.pipeline; ++position) {
    const KindCosts &smallest = *std::ranges::min_element(siteAt(position), {}, &KindCosts::capacity);
    capacity += smallest.capacity, bytes += smallest.costs.others;
  }
  return {bytes, capacity};
}

double Estimator::bytesOfOnlyMicrobatch(const Schedule &schedule, const std::vector<Stage> &stages, int64_t position,
                                        size_t kind) const {
  double stored = 0, kept = 0, gradients = 0, most = 0;
  struct Kept {
    const LayerCost *layer;
    bool split;
    double bytes; // until its backward pass, or that of its weights
  };
  std::vector<Kept> own;
  for (size_t s = 0; s < stages.size(); ++s)
    if (schedule.rankOf(static_cast<int64_t>(s)) == position) {
      stored += stages[s].memory[std::min(kind, stages[s].memory.size() - 1)].fixed;
      for (size_t i = stages[s].begin; i < stages[s].end; ++i) {
        const SiteCosts &site = siteAt(position, i);
        const LayerCost &layer = costOf(i, site[std::min(kind, site.size() - 1)].costs);
        own.push_back(
            {&layer, s > 0 && schedule.backward == BackwardPass::Split, layer.copies + layer.kept + layer.scores});
        stored -= layer.copies + layer.gradients;
        kept += own.back().bytes;
      }
    }
  for (auto &[layer, split, bytes] : std::views::reverse(own))
    if (split) {
      most = std::max(most, kept + layer->transient);
      kept += layer->keptGradients, bytes += layer->keptGradients;
    }
  for (const auto &[layer, split, bytes] : std::views::reverse(own)) {
    // A layer's gradients are written at its end; with several microbatches, as measured, they are transient at first.
    most = std::max(most, kept + gradients + std::max(split ? 0 : layer->transient, layer->gradients));
    gradients += layer->gradients, kept -= bytes;
  }
  return stored + most;
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
          const Memory &memory = of(stages[s].memory);
          fixed += memory.fixed;
          transient =
              std::max(transient, schedule.backward == BackwardPass::Split ? memory.splitTransient : memory.transient);
        }
      const KindCosts &kind = of(siteAt(position));
      const double bytes =
          kind.costs.others + (group.microbatches == 1 ? bytesOfOnlyMicrobatch(schedule, stages, position, k)
                                                       : fixed + peaks[static_cast<size_t>(position)] + transient);
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
  return of(choice, begins, network.shared);
}

Estimate Estimator::atLeast(const ScheduleChoice &choice, const std::vector<size_t> &begins) const {
  return of(choice, begins, noSharedLinks);
}

Estimate Estimator::of(const ScheduleChoice &choice, const std::vector<size_t> &begins,
                       const SharedLinks &shared) const {
  if (begins.empty())
    return {INFINITY, INFINITY, 0};
  return of(choice.of(group), begins, shared);
}

Estimate Estimator::of(const Schedule &schedule, const std::vector<size_t> &begins, const SharedLinks &shared) const {
  Estimate estimate{INFINITY, -INFINITY, INFINITY};
  const std::vector<Stage> stages = stagesOf(schedule, begins);
  const auto times = timesOf(schedule, costsOf(schedule, stages), shared);
  if (!times)
    return {INFINITY, INFINITY, 0};
  estimate.seconds = withEnds(schedule, begins, stages, *times);
  addMemory(estimate, schedule, stages);
  return estimate;
}

Estimate Estimator::moveCuts(const ScheduleChoice &choice, std::vector<size_t> &cuts, Estimate now,
                             int64_t &passes) const {
  constexpr double least = 1e-6; // of the time, that a move saves
  if (cuts.size() < 2 || cuts.size() == begins.size())
    return now;
  const Schedule schedule = choice.of(group);
  const Units units = unitsOf();
  std::vector<size_t> limits; // the first unit of each stage, and the end
  for (const size_t layer : cuts)
    limits.push_back(units.of[layer]);
  limits.push_back(units.first.size());
  int64_t all = 0; // passes of an estimate
  for (const auto &rank : schedule.order)
    all += std::ssize(rank);
  const auto move = [&](size_t from, size_t to, bool right) { // of the limits
    if (right ? limits[to] + 1 == limits[to + 1] : limits[from] == limits[from - 1] + 1)
      return false;
    std::vector<size_t> moved = cuts;
    for (size_t i = from; i <= to; ++i)
      moved[i] = units.first[right ? limits[i] + 1 : limits[i] - 1];
    passes -= all;
    const auto worse = [&](const Estimate &estimate) {
      return estimate.bytes > std::max(memoryMargin * estimate.capacity, now.bytes) ||
             estimate.seconds >= now.seconds * (1 - least);
    };
    Estimate estimate = of(schedule, moved, noSharedLinks); // no slower, and faster to compute
    if (worse(estimate))
      return false;
    if (!network.shared.flows.empty() && worse(estimate = of(schedule, moved, network.shared)))
      return false;
    now = std::move(estimate), cuts = std::move(moved);
    for (size_t i = from; i <= to; ++i)
      limits[i] = units.of[cuts[i]];
    return true;
  };
  for (bool saves = true; saves;) {
    saves = false;
    for (size_t length = 0; length + 1 < cuts.size(); ++length)
      for (size_t from = 1; from + length < cuts.size(); ++from)
        for (const bool right : {true, false})
          while (passes > 0 && move(from, from + length, right))
            saves = true;
  }
  return now;
}

} // namespace cleave::partitioner
