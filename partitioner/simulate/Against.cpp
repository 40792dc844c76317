// Sums times by kind, stage, rank and step.
#include "partitioner/simulate/Against.h"

#include "partitioner/simulate/Intervals.h"
#include "partitioner/simulate/Script.h"
#include "partitioner/simulate/Transfers.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/Names.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace cleave::partitioner {

using check::length;

namespace {

auto nameOf(const ComparedKind &row) { return std::tie(row.kind); }
auto nameOf(const ComparedStep &row) { return std::tie(row.kind, row.segment, row.path); }

template <typename Row> void largestMissFirst(std::vector<Row> &rows) {
  std::sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
    const double missA = std::abs(a.time.miss()), missB = std::abs(b.time.miss());
    return missA != missB ? missA > missB : nameOf(a) < nameOf(b);
  });
}

/// Means over ranks, by key.
template <typename Key> class Means {
public:
  void add(const Key &key, const Compared &time) {
    Compared &sum = sums[key];
    sum.predicted += time.predicted;
    sum.measured += time.measured;
  }
  template <typename Fn> void forEach(double ranks, Fn fn) const {
    for (const auto &[key, sum] : sums)
      fn(key, Compared{sum.predicted / ranks, sum.measured / ranks});
  }

private:
  std::map<Key, Compared> sums;
};

std::vector<ComparedKind> rowsOf(const Means<std::string> &means, double ranks) {
  std::vector<ComparedKind> rows;
  means.forEach(ranks, [&](const std::string &kind, const Compared &time) {
    if (time.predicted > 0 || time.measured > 0)
      rows.push_back({kind, time});
  });
  largestMissFirst(rows);
  return rows;
}

class Comparer {
public:
  Comparer(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation, const MeasuredRun &run)
      : plan(plan), simulation(simulation), run(run), transfers(plan, run) {
    const bool gpu = backendOf(plan) == Target::Kind::Cuda;
    for (const AlikeRanks &one : simulation.ranks.classes) {
      scripts.push_back(makeScript(plan, *plan.programs()->Get(one.program), gpu));
      std::vector<double> &seconds = costs.emplace_back();
      for (const TransferSeconds &each :
           scriptCosts(scripts.back(), simulation.ranks, one, CostDevice(cluster.devices[one.kind])))
        seconds.push_back(each.all());
      if (!gpu) // a host sends in the background
        for (const ScriptSegment &segment : scripts.back().segments)
          for (size_t i = 0; i < segment.steps.size(); ++i)
            if (segment.steps[i].kind == ScriptStep::Send)
              costs.back()[segment.firstCost + i] = 0;
    }
    result.iterations = run.iterations;
  }

  Comparison compare() {
    compareIterations();
    for (uint32_t rank = 0; rank < run.ranks.size(); ++rank)
      compareRank(rank);
    const auto ranks = static_cast<double>(run.ranks.size());
    result.kinds = rowsOf(kinds, ranks);
    for (const auto &[stage, means] : stages)
      result.stages.push_back({stage, ranksOf[stage], rowsOf(means, ranksOf[stage])});
    for (const auto &[key, sum] : steps) {
      const auto &[kind, segment, path] = key;
      const double having = sum.second;
      result.steps.push_back({kind, segment, path, {sum.first.predicted / having, sum.first.measured / having}});
    }
    largestMissFirst(result.steps);
    return std::move(result);
  }

private:
  void compareIterations() {
    std::vector<double> begins(run.iterations, INFINITY), ends(run.iterations, 0), spans, gaps;
    for (const auto &steps : run.ranks)
      for (const MeasuredStep &one : steps) {
        begins[one.iteration] = std::min(begins[one.iteration], one.begin);
        ends[one.iteration] = std::max(ends[one.iteration], one.begin + one.seconds);
      }
    for (uint32_t i = 0; i < run.iterations; ++i) {
      spans.push_back(std::max(0.0, ends[i] - begins[i]));
      if (i > 0)
        gaps.push_back(begins[i] - ends[i - 1]);
    }
    result.step = {simulation.stepSeconds, median(spans)};
    result.between = std::max(0.0, median(gaps));
  }

  void compareRank(uint32_t rank) {
    const uint32_t index = simulation.ranks.classOf[rank];
    const Script &script = scripts[index];
    const plan::Program &program = *plan.programs()->Get(plan.ranks()->Get(rank)->program());
    std::vector<uint64_t> runs(script.segments.size(), 0);
    for (const ScriptAction &action : script.actions)
      ++runs[action.segment];
    const std::vector<std::vector<double>> measured = sumsOf(rank, script);
    Means<std::string> own;
    std::map<int64_t, bool> seen;
    std::map<StepKey, Compared> byStep;
    for (uint32_t s = 0; s < script.segments.size(); ++s) {
      const ScriptSegment &segment = script.segments[s];
      if (runs[s] == 0)
        continue;
      const plan::Segment &info = *program.segments()->Get(s);
      for (uint32_t i = 0; i < segment.steps.size(); ++i) {
        const size_t flat = segment.firstCost + i;
        const Compared time{costs[index][flat] * static_cast<double>(runs[s]), median(measured[flat])};
        const std::string kind = kindOf(rank, segment.steps[i]);
        const int64_t stage = info.stage();
        own.add(kind, time);
        kinds.add(kind, time);
        stages[stage].add(kind, time);
        seen[stage] = true;
        Compared &sum = byStep[{kind, info.name() ? info.name()->str() : "", pathOfStep(*info.steps()->Get(i))}];
        sum.predicted += time.predicted;
        sum.measured += time.measured;
      }
    }
    for (const auto &[stage, there] : seen)
      ++ranksOf[stage];
    for (const auto &[key, time] : byStep) {
      auto &[sum, having] = steps[key];
      sum.predicted += time.predicted;
      sum.measured += time.measured;
      ++having;
    }
    addRank(rank, index, program.stage(), own);
  }

  /// The measured seconds of each step of the script's segments in every iteration.
  std::vector<std::vector<double>> sumsOf(uint32_t rank, const Script &script) const {
    std::vector<std::vector<double>> sums(script.costs, std::vector<double>(run.iterations, 0));
    for (size_t i = 0; i < run.ranks[rank].size(); ++i) {
      const MeasuredStep &one = run.ranks[rank][i];
      sums[script.segments[one.segment].firstCost + one.step][one.iteration] += transfers.of(rank, i);
    }
    return sums;
  }

  void addRank(uint32_t rank, uint32_t index, int64_t stage, const Means<std::string> &own) {
    const ClassTimes &times = simulation.times[index];
    std::vector<Intervals> computing(run.iterations), communicating(run.iterations);
    for (size_t i = 0; i < run.ranks[rank].size(); ++i) {
      const MeasuredStep &one = run.ranks[rank][i];
      const double end = one.begin + one.seconds;
      const bool computes = scripts[index].segments[one.segment].steps[one.step].kind == ScriptStep::Compute;
      (computes ? computing : communicating)[one.iteration].add(end - transfers.of(rank, i), end);
    }
    std::vector<double> busy, communication;
    for (uint32_t i = 0; i < run.iterations; ++i) {
      computing[i].merge();
      communicating[i].merge();
      busy.push_back(computing[i].length());
      communication.push_back(communicating[i].length() - communicating[i].overlap(computing[i]));
    }
    ComparedRank &row = result.ranks.emplace_back();
    row.rank = rank;
    row.stage = stage;
    row.busy = {times.busy, median(busy)};
    row.communication = {times.communication, median(communication)};
    row.idle = {times.idle, std::max(0.0, result.step.measured - row.busy.measured - row.communication.measured)};
    row.kinds = rowsOf(own, 1);
  }

  std::string kindOf(uint32_t rank, const ScriptStep &step) const {
    if (step.kind == ScriptStep::Compute)
      return workClassName(step.work.kind);
    if (step.kind != ScriptStep::Collective)
      return "message";
    const plan::Group &group = *plan.groups()->Get(plan.ranks()->Get(rank)->groups()->Get(step.entry));
    return std::string(collectiveName(step.collective)) + (group.axis() ? " " + group.axis()->str() : "");
  }

  std::string pathOfStep(const plan::Step &step) const {
    return step.path() < length(plan.strings()) ? plan.strings()->Get(step.path())->str() : "";
  }

  using StepKey = std::tuple<std::string, std::string, std::string>; ///< kind, segment, path

  const plan::Plan &plan;
  const Simulation &simulation;
  const MeasuredRun &run;
  const Transfers transfers;
  std::vector<Script> scripts; ///< by class
  std::vector<std::vector<double>> costs;
  Means<std::string> kinds;
  std::map<int64_t, Means<std::string>> stages;
  std::map<int64_t, uint32_t> ranksOf;
  std::map<StepKey, std::pair<Compared, double>> steps; ///< sum of times, number of ranks that have the step
  Comparison result;
};

} // namespace

Comparison compareWithRun(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation,
                          const MeasuredRun &run) {
  return Comparer(plan, cluster, simulation, run).compare();
}

} // namespace cleave::partitioner
