// Which constants are fitted, and the samples of measured steps.
#include "partitioner/simulate/Calibrate.h"

#include "partitioner/cluster/FileConstants.h"
#include "partitioner/cost/Constants.h"
#include "partitioner/simulate/Fit.h"
#include "partitioner/simulate/Script.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/simulate/Transfers.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <set>

namespace cleave::partitioner {

namespace {

/// A constant of a cluster.
struct Knob {
  std::string name;
  double before;
  double belief; ///< FitProblem::beliefs
  bool products; ///< whether only products, convolutions and attention depend on it
  std::function<void(Cluster &, double)> set;
};

/// The places of the devices that the plans use.
struct Used {
  std::set<size_t> kinds, groups;
  bool network = false;
};

Used usedBy(const std::vector<PlanRuns> &plans, const Cluster &cluster) {
  Used used;
  for (const PlanRuns &one : plans)
    for (const Cluster::Place &place : cluster.places(one.plan->ranks()->size())) {
      used.kinds.insert(place.kind);
      used.groups.insert(place.group);
      used.network |= place.node > 0;
    }
  return used;
}

class Knobs {
  static constexpr double rates = 1, usual = 0.3, fractions = 0.5, rare = 1.5; // beliefs
public:
  Knobs(const Cluster &cluster, const Used &used) {
    for (const FileConstant &one : constantsOf(cluster)) {
      // Datasheets are right about GPUs; processors are measured.
      const bool known = one.kind && one.dataSheet && cluster.devices[*one.kind].backend != "cpu",
                 network = !one.kind && !one.group;
      const bool isUsed = one.kind  ? used.kinds.contains(*one.kind)
                          : network ? used.network
                                    : used.groups.contains(*one.group);
      if (isUsed && !known)
        knobs.push_back({one.name, one.value, rates, one.peak, one.set});
    }
    for (const size_t kind : used.kinds)
      addModel(cluster.devices[kind], kind);
  }

  std::vector<Knob> take() { return std::move(knobs); }

private:
  /// The constants of the cost model.
  void addModel(const DeviceKind &kind, size_t index) {
    const DeviceConstants constants = constantsOf(kind);
    for (size_t i = 0; i < constantCount; ++i) {
      const auto constant = static_cast<Constant>(i);
      if (const double before = constantOf(constants, constant); before > 0)
        knobs.push_back({fmt::format("devices.{}.constants.{}", kind.name, constantName(constant)), before,
                         beliefOf(constant), ofProducts(constant),
                         [=](Cluster &c, double value) { c.devices[index].constants[i] = value; }});
    }
  }

  /// What many kinds of steps have in common may be far from its value. The fractions that the usual kinds reach of it
  /// are known better; those of rare kinds, whose code differs more, are known worst.
  static double beliefOf(Constant constant) {
    switch (constant) {
    case Constant::LaunchUs:
    case Constant::HalfSize:
    case Constant::ConvolutionHalfSize:
    case Constant::FunctionNs:
      return rates;
    case Constant::ProductFp32:
    case Constant::ProductTf32:
    case Constant::ProductFp16:
    case Constant::ProductBf16:
    case Constant::Elementwise:
      return usual;
    case Constant::Copy:
    case Constant::Lookup:
    case Constant::Pooling:
    case Constant::Random:
      return rare;
    default:
      return fractions;
    }
  }

  static bool ofProducts(Constant constant) {
    return constant == Constant::HalfSize || constant == Constant::ConvolutionHalfSize ||
           (constant >= Constant::ProductFp32 && constant <= Constant::AttentionMemory);
  }

  std::vector<Knob> knobs;
};

/// The steps of a plan whose times are used: of each class of ranks those that the cost model predicts and that were
/// measured.
class Samples {
public:
  Samples(const PlanRuns &given, const Cluster &cluster) : plan(*given.plan) {
    const RankClasses ranks = classifyRanks(plan, cluster);
    const bool gpu = backendOf(plan) == Target::Kind::Cuda;
    for (const AlikeRanks &one : ranks.classes) {
      representatives.push_back(one.representative);
      scripts.push_back(makeScript(plan, *plan.programs()->Get(one.program), gpu));
      times.emplace_back(scripts.back().costs);
    }
    std::vector<double> spans;
    for (const MeasuredRun &run : given.runs)
      add(run, ranks, gpu ? 0 : gapOf(run, ranks), spans);
    iterations = static_cast<uint32_t>(spans.size());
    iteration = median(spans);
    choose(ranks, cluster, gpu);
  }

  /// Seconds of the chosen steps.
  void predict(const Cluster &cluster, std::vector<double> &seconds) const {
    const std::vector<std::vector<double>> costs = costsOf(classifyRanks(plan, cluster), cluster);
    for (const Chosen &one : chosen)
      seconds.push_back(costs[one.index][one.flat]);
  }

  const plan::Plan &plan;
  uint32_t iterations = 0;
  double iteration = 0; ///< seconds: the median
  // Of the chosen steps:
  std::vector<double> measured, shares; ///< seconds; share of the plan's time
  std::vector<bool> products;           ///< whether it is a product, a convolution or attention

private:
  struct Chosen {
    size_t index, flat; ///< class of ranks; step
  };

  static bool multiplies(WorkClass kind) {
    return kind == WorkClass::Product || kind == WorkClass::Convolution || kind == WorkClass::Attention;
  }

  bool computes(const RankClasses &ranks, uint32_t rank, const MeasuredStep &one) const {
    return scripts[ranks.classOf[rank]].segments[one.segment].steps[one.step].kind == ScriptStep::Compute;
  }

  /// Seconds from the end of a step of a host to the next one: the median. A part of the time to launch.
  double gapOf(const MeasuredRun &run, const RankClasses &ranks) const {
    std::vector<double> gaps;
    for (uint32_t rank = 0; rank < run.ranks.size(); ++rank)
      for (size_t i = 1; i < run.ranks[rank].size(); ++i) {
        const MeasuredStep &one = run.ranks[rank][i - 1], &next = run.ranks[rank][i];
        if (one.iteration == next.iteration && computes(ranks, rank, one) && computes(ranks, rank, next))
          gaps.push_back(std::max(0.0, next.begin - one.begin - one.seconds));
      }
    return median(std::move(gaps));
  }

  void add(const MeasuredRun &run, const RankClasses &ranks, double gap, std::vector<double> &spans) {
    const Transfers transfers(plan, run);
    std::vector<double> begins(run.iterations, INFINITY), ends(run.iterations, 0);
    for (uint32_t rank = 0; rank < run.ranks.size(); ++rank)
      for (size_t i = 0; i < run.ranks[rank].size(); ++i) {
        const MeasuredStep &one = run.ranks[rank][i];
        begins[one.iteration] = std::min(begins[one.iteration], one.begin);
        ends[one.iteration] = std::max(ends[one.iteration], one.begin + one.seconds);
        const uint32_t index = ranks.classOf[rank];
        if (transfers.whole(rank, i))
          times[index][scripts[index].segments[one.segment].firstCost + one.step].push_back(
              transfers.of(rank, i) + (computes(ranks, rank, one) ? gap : 0));
      }
    for (uint32_t i = 0; i < run.iterations; ++i)
      spans.push_back(std::max(0.0, ends[i] - begins[i]));
  }

  std::vector<std::vector<double>> costsOf(const RankClasses &ranks, const Cluster &cluster) const {
    std::vector<std::vector<double>> all;
    for (size_t i = 0; i < scripts.size(); ++i) {
      const AlikeRanks &one = ranks.classes[ranks.classOf[representatives[i]]];
      std::vector<double> &seconds = all.emplace_back();
      for (const TransferSeconds &each : scriptCosts(scripts[i], ranks, one, CostDevice(cluster.devices[one.kind])))
        seconds.push_back(each.all());
    }
    return all;
  }

  void choose(const RankClasses &ranks, const Cluster &cluster, bool gpu) {
    const std::vector<std::vector<double>> costs = costsOf(ranks, cluster);
    for (size_t index = 0; index < scripts.size(); ++index) {
      std::vector<double> runs(scripts[index].segments.size(), 0);
      for (const ScriptAction &action : scripts[index].actions)
        ++runs[action.segment];
      for (size_t s = 0; s < runs.size(); ++s)
        for (size_t i = 0; i < scripts[index].segments[s].steps.size(); ++i) {
          const size_t flat = scripts[index].segments[s].firstCost + i;
          const bool sends = scripts[index].segments[s].steps[i].kind == ScriptStep::Send;
          const double seconds = median(times[index][flat]);
          if ((sends && !gpu) || costs[index][flat] <= 0 || seconds <= 0) // a host sends in the background
            continue;
          chosen.push_back({index, flat});
          measured.push_back(seconds);
          products.push_back(multiplies(scripts[index].segments[s].steps[i].work.kind));
          shares.push_back(std::sqrt(seconds * runs[s] * ranks.classes[index].ranks));
        }
    }
    double all = 0;
    for (const double share : shares)
      all += share;
    for (double &share : shares)
      share /= all;
  }

  std::vector<uint32_t> representatives;               ///< by class of ranks, on the cluster before the fit
  std::vector<Script> scripts;                         ///< by class of ranks
  std::vector<std::vector<std::vector<double>>> times; ///< by class and step: of all ranks, iterations, microbatches
  std::vector<Chosen> chosen;
};

double rounded4(double value) { return std::stod(fmt::format("{:.4g}", value)); }

class Calibrator {
public:
  Calibrator(const Cluster &cluster, const std::vector<PlanRuns> &given)
      : cluster(cluster), knobs(Knobs(cluster, usedBy(given, cluster)).take()) {
    for (const PlanRuns &one : given)
      plans.emplace_back(one, cluster);
  }

  Calibration run() {
    std::vector<bool> products;
    for (const Samples &plan : plans) {
      measured.insert(measured.end(), plan.measured.begin(), plan.measured.end());
      weights.insert(weights.end(), plan.shares.begin(), plan.shares.end());
      products.insert(products.end(), plan.products.begin(), plan.products.end());
    }
    // Products may be slow for many reasons, so they do not say how fast the memory is.
    Calibration result;
    result.cluster = cluster;
    std::vector<FittedConstant> fitted(knobs.size());
    for (const bool stage : {false, true})
      fit(stage, products, result.cluster, fitted);
    report(fitted, result);
    return result;
  }

private:
  /// Fits the constants of products, or the others, to the samples of the same kind, and sets them.
  void fit(bool stage, const std::vector<bool> &products, Cluster &fittedCluster, std::vector<FittedConstant> &fitted) {
    std::vector<size_t> some, samples;
    for (size_t i = 0; i < knobs.size(); ++i)
      if (knobs[i].products == stage)
        some.push_back(i);
    for (size_t s = 0; s < measured.size(); ++s)
      if (products[s] == stage)
        samples.push_back(s);
    if (samples.empty())
      return;
    FitProblem problem;
    problem.constants = some.size();
    double all = 0;
    for (const size_t i : some)
      problem.beliefs.push_back(knobs[i].belief);
    for (const size_t s : samples) {
      problem.measured.push_back(measured[s]);
      problem.weights.push_back(weights[s]);
      all += weights[s];
    }
    for (double &weight : problem.weights)
      weight *= static_cast<double>(samples.size()) / all;
    problem.predict = [&](std::span<const double> logs) {
      Cluster changed = fittedCluster;
      for (size_t i = 0; i < some.size(); ++i)
        if (logs[i] != 0)
          knobs[some[i]].set(changed, knobs[some[i]].before * std::exp(logs[i]));
      const std::vector<double> every = predict(changed);
      std::vector<double> seconds;
      for (const size_t s : samples)
        seconds.push_back(every[s]);
      return seconds;
    };
    std::vector<FittedConstant> found = fitFactors(problem);
    for (size_t i = 0; i < some.size(); ++i) {
      for (size_t &s : found[i].samples)
        s = samples[s];
      if (found[i].determined)
        knobs[some[i]].set(fittedCluster, rounded4(knobs[some[i]].before * found[i].factor));
      fitted[some[i]] = std::move(found[i]);
    }
  }

  std::vector<double> predict(const Cluster &on) const {
    std::vector<double> seconds;
    for (const Samples &plan : plans)
      plan.predict(on, seconds);
    return seconds;
  }

  void report(const std::vector<FittedConstant> &fitted, Calibration &result) const {
    if (std::ranges::none_of(fitted, &FittedConstant::determined))
      throw environmentError("the traces determine no constant of the cluster");
    const std::vector<double> before = misses(cluster), after = misses(result.cluster);
    const auto over = [this](const std::vector<double> &all, const std::vector<size_t> &samples) {
      std::vector<std::pair<double, double>> some;
      for (const size_t s : samples)
        some.emplace_back(all[s], weights[s]);
      return weightedMedian(std::move(some));
    };
    for (size_t i = 0; i < knobs.size(); ++i) {
      CalibratedConstant &one = result.constants.emplace_back();
      one.name = knobs[i].name;
      one.before = knobs[i].before;
      one.determined = fitted[i].determined;
      one.after = one.determined ? rounded4(knobs[i].before * fitted[i].factor) : one.before;
      one.error = fitted[i].error;
      one.steps = fitted[i].samples.size();
      one.missBefore = over(before, fitted[i].samples);
      one.missAfter = over(after, fitted[i].samples);
    }
    result.steps = before.size();
    std::vector<size_t> every(before.size());
    std::iota(every.begin(), every.end(), 0);
    result.missBefore = over(before, every);
    result.missAfter = over(after, every);
    for (const Samples &plan : plans)
      result.plans.push_back({.iterations = plan.iterations,
                              .steps = plan.measured.size(),
                              .measured = plan.iteration,
                              .before = simulate(plan.plan, cluster).stepSeconds,
                              .after = simulate(plan.plan, result.cluster).stepSeconds});
  }

  std::vector<double> misses(const Cluster &on) const {
    std::vector<double> all = predict(on);
    for (size_t s = 0; s < all.size(); ++s)
      all[s] = std::abs(all[s] / measured[s] - 1);
    return all;
  }

  const Cluster &cluster;
  const std::vector<Knob> knobs;
  std::vector<Samples> plans;
  std::vector<double> measured, weights; ///< of all samples
};

} // namespace

Calibration calibrate(const Cluster &cluster, const std::vector<PlanRuns> &plans) {
  return Calibrator(cluster, plans).run();
}

} // namespace cleave::partitioner
