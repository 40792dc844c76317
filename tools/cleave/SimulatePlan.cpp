// cleave simulate FILE.plan: predicts an iteration of a plan on a cluster.
#include "tools/cleave/SimulatePlan.h"
#include "partitioner/simulate/Against.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/simulate/Trace.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/PrintAgainst.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::tool {

using namespace partitioner;

static constexpr uint64_t mostTraceBytes = uint64_t{4} << 30;

namespace {

double milliseconds(double seconds) { return seconds * 1e3; }

struct Predicted {
  const plan::Plan &plan;
  const Cluster &cluster;
  const Simulation &simulation;
  const std::optional<std::string> memory; ///< why the plan does not fit into memory, or none

  /// For each class, the bytes that a rank needs.
  std::vector<uint64_t> peakBytes() const {
    std::vector<uint64_t> all;
    for (const AlikeRanks &one : simulation.ranks.classes)
      all.push_back(neededBytes(*plan.programs()->Get(one.program), cluster.devices[one.kind]));
    return all;
  }
  double samplesPerSecond() const { return ratio(plan.batch()); }
  double flopsPerDevice() const {
    return ratio(simulation.flops / static_cast<double>(simulation.ranks.classOf.size()));
  }

private:
  double ratio(double value) const { return simulation.stepSeconds > 0 ? value / simulation.stepSeconds : 0; }
};

void printJson(const Predicted &predicted, const std::optional<Comparison> &against) {
  using Json = nlohmann::ordered_json;
  const Simulation &simulation = predicted.simulation;
  Json peak = Json::array(), ranks = Json::array();
  const std::vector<uint64_t> peaks = predicted.peakBytes();
  for (uint32_t c : simulation.ranks.classOf) {
    const ClassTimes &times = simulation.times[c];
    peak.push_back(peaks[c]);
    ranks.push_back(Json{{"busy_ms", milliseconds(times.busy)},
                         {"idle_ms", milliseconds(times.idle)},
                         {"communication_ms", milliseconds(times.communication)},
                         {"hidden_ms", milliseconds(times.hidden)}});
  }
  Json out{{"step_ms", milliseconds(simulation.stepSeconds)},
           {"bubble_fraction", simulation.bubbleFraction},
           {"peak_bytes", std::move(peak)},
           {"ranks", std::move(ranks)},
           {"samples_per_s", predicted.samplesPerSecond()},
           {"flops_per_device", predicted.flopsPerDevice()},
           {"fits", !predicted.memory},
           {"cluster", predicted.cluster.name}};
  if (against)
    out["against"] = againstJson(*against);
  fmt::print("{}\n", jsonText(out));
}

/// "812.3 ms", "1.24 s"
std::string duration(double seconds) {
  return seconds >= 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.3g} ms", milliseconds(seconds));
}

std::string gibibytes(double bytes) { return fmt::format("{:.2f}", bytes / (1 << 30)); }

void printRanks(const Predicted &predicted) {
  const Simulation &simulation = predicted.simulation;
  fmt::print("{:<16} {:<10} {:>10} {:>10} {:>10} {:>10}  {:>10} {:>7}\n", "ranks", "device", "compute", "exchange",
             "(hidden)", "idle, ms", "GiB needed", "there");
  const std::vector<uint64_t> peaks = predicted.peakBytes();
  for (size_t c = 0; c < simulation.times.size(); ++c) {
    const AlikeRanks &one = simulation.ranks.classes[c];
    const DeviceKind &kind = predicted.cluster.devices[one.kind];
    const ClassTimes &times = simulation.times[c];
    const std::string ranks = one.ranks == 1 ? fmt::format("{}", one.representative)
                                             : fmt::format("{} and {} more", one.representative, one.ranks - 1);
    const auto peak = static_cast<double>(peaks[c]);
    fmt::print("{:<16} {:<10} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}  {:>10} {:>7}{}\n", ranks, kind.name,
               milliseconds(times.busy), milliseconds(times.communication), milliseconds(times.hidden),
               milliseconds(times.idle), gibibytes(peak), gibibytes(kind.memoryBytes()),
               peak > usableBytes(kind) ? "  does not fit" : "");
  }
}

/// The class that computes longest, or the end.
std::vector<ClassTimes>::const_iterator busiestOf(const std::vector<ClassTimes> &times) {
  return std::max_element(times.begin(), times.end(), [](const auto &a, const auto &b) { return a.busy < b.busy; });
}

/// Prints how the class that computes longest spends its time.
void printWork(const Predicted &predicted) {
  const auto &times = predicted.simulation.times;
  const auto busiest = busiestOf(times);
  if (busiest == times.end())
    return;
  fmt::print("\nrank {}, ms:",
             predicted.simulation.ranks.classes[static_cast<size_t>(busiest - times.begin())].representative);
  for (size_t kind = 0; kind < workClassCount; ++kind)
    if (busiest->byWork[kind] > 0)
      fmt::print("  {} {:.2f}", workClassName(static_cast<WorkClass>(kind)), milliseconds(busiest->byWork[kind]));
  if (busiest->collectives > 0)
    fmt::print("  collectives {:.2f}", milliseconds(busiest->collectives));
  if (busiest->messages > 0)
    fmt::print("  messages {:.2f}", milliseconds(busiest->messages));
  fmt::print("\n");
}

void printPage(const Predicted &predicted) {
  const Simulation &simulation = predicted.simulation;
  const size_t ranks = simulation.ranks.classOf.size();
  fmt::print("{}   {} rank{} on {}\n", predicted.plan.model() ? predicted.plan.model()->str() : "", ranks,
             ranks == 1 ? "" : "s", predicted.cluster.name);
  fmt::print("predicted {} a step   {:.4g} samples/s   {:.3g} TFLOP/s a device   bubble {:.1f}%\n\n",
             duration(simulation.stepSeconds), predicted.samplesPerSecond(), predicted.flopsPerDevice() / 1e12,
             100 * simulation.bubbleFraction);
  printRanks(predicted);
  printWork(predicted);
  if (predicted.memory)
    fmt::print("\ndoes not fit: {}\n", *predicted.memory);
}

} // namespace

/// The cluster for which the plan was made, or none.
static std::optional<Cluster> ownCluster(const plan::Plan &plan, const std::string &file) {
  if (!plan.cluster() || plan.cluster()->size() == 0)
    return std::nullopt;
  return Cluster::parse(plan.cluster()->str(), "the cluster in " + file);
}

PlanSummary summaryAndPrediction(const std::string &file, const PlanFile &plan) {
  PlanSummary report = summaryOf(plan);
  const std::optional<Cluster> cluster = ownCluster(plan.plan(), file);
  if (!cluster)
    return report;
  const Simulation simulation = simulate(plan.plan(), *cluster);
  if (const auto busiest = busiestOf(simulation.times); busiest != simulation.times.end())
    report.predicted = {.step = simulation.stepSeconds,
                        .compute = busiest->busy,
                        .communication = busiest->communication,
                        .hidden = busiest->hidden,
                        .idle = busiest->idle,
                        .bubbleFraction = simulation.bubbleFraction};
  return report;
}

Cluster clusterOf(const plan::Plan &plan, const std::string &file, const std::string &named) {
  if (!named.empty())
    return Cluster::load(named);
  if (std::optional<Cluster> own = ownCluster(plan, file))
    return std::move(*own);
  throw userError(file + ": the plan does not say for which cluster it was made; make it with --cluster FILE.toml "
                         "(cleave simulate, report and calibrate also take one)");
}

MeasuredRun loadTrace(const std::string &trace, const PlanFile &plan) {
  return readTrace(readTextFile(trace, Status::User, mostTraceBytes), trace, plan.plan(), plan.hash());
}

void simulatePlan(const std::string &file, const SimulatePlanOptions &options) {
  const auto loaded = loadSound(file);
  const plan::Plan &plan = loaded->plan();
  const Cluster cluster = clusterOf(plan, file, options.cluster);
  const Simulation simulation = simulate(plan, cluster, {.timeline = !options.trace.empty()});
  const Predicted predicted{plan, cluster, simulation, memoryProblem(plan, cluster)};
  std::optional<Comparison> against;
  if (!options.against.empty())
    against = compareWithRun(plan, cluster, simulation, loadTrace(options.against, *loaded));
  if (!options.trace.empty())
    writeSimulatedTrace(options.trace, plan, simulation);
  if (options.json)
    return printJson(predicted, against);
  printPage(predicted);
  if (against)
    printAgainst(*against, options.against);
}

} // namespace cleave::tool
