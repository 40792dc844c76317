// Searches and prints the rows of the table.
#include "frontend/program/DeviceTable.h"

#include "partitioner/cluster/Cluster.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "partitioner/strategy/DecisionTable.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Parts.h"
#include "runtime/options/Option.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/Interrupt.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <ranges>

namespace cleave {

namespace {

using Json = nlohmann::ordered_json;

/// The entries of an option's list; the option keeps the first. Empty: it is not given, or no list.
std::vector<std::string> takeList(std::vector<GivenOption> &line, const std::string &option) {
  for (GivenOption &each : line)
    if (each.name == option && each.value && each.value->find(',') != std::string::npos) {
      std::vector<std::string> entries = partsOf(*each.value, ',');
      each.value = entries[0];
      return entries;
    }
  return {};
}

struct Row {
  int64_t devices = 0;
  std::string cluster, strategy, problem;
  double step = 0; ///< seconds
  double samplesPerSecond = 0;
  partitioner::MemoryUse memory;
};

std::string strategyLine(const plan::Plan &plan, const PlanSummary &summary) {
  std::string line = summary.ranks > 1 ? ranksText(summary.mesh) : "1 rank";
  line.erase(0, summary.ranks > 1 ? line.find("= ") + 2 : 0);
  if (summary.mesh.size(AxisRole::Pipeline) > 1)
    line += ", " + summary.schedule;
  if (summary.microbatches > 1)
    line += fmt::format(", {} microbatches", summary.microbatches);
  const auto all = partitioner::Decisions::parse(text(plan.strategy()), "the plan");
  for (const partitioner::DecisionRow &row : std::views::reverse(partitioner::decisionTable()))
    if (const std::string value = row.value(all); row.tried && row.tried->of(all) != 0) // the first one is off
      line += fmt::format(", {}{}", row.word, row.tried->count > 2 ? " " + value : "");
  return line;
}

Row planned(Trainer &trainer, RunOptions options, int64_t devices, const std::string &clusterFile) {
  Row row{.devices = devices, .cluster = clusterFile};
  options.devices = devices, options.cluster = clusterFile, options.code = false;
  try {
    const auto file = PlanFile::fromBytes(trainer.plan(options), "the plan");
    const plan::Plan &plan = file->plan();
    const auto cluster = partitioner::Cluster::parse(text(plan.cluster()), clusterFile);
    row.cluster = cluster.name;
    row.step = partitioner::simulate(plan, cluster).stepSeconds;
    row.samplesPerSecond = row.step > 0 ? plan.batch() / row.step : 0;
    row.memory = partitioner::tightest(plan, cluster);
    row.strategy = strategyLine(plan, summaryOf(*file));
  } catch (const Error &error) {
    if (error.status != Status::Environment)
      throw;
    row.problem = error.what();
  }
  return row;
}

} // namespace

std::optional<DeviceTable> DeviceTable::take(std::vector<GivenOption> &line) {
  const std::vector<std::string> counts = takeList(line, "--devices"), clusters = takeList(line, "--cluster");
  if (counts.empty() && clusters.empty())
    return std::nullopt;
  DeviceTable table{{}, clusters};
  for (const std::string &count : counts) {
    if (const std::string problem = problemOfWhole(count, 1, 1 << 20); !problem.empty())
      throw userError(fmt::format("--devices: each of the list {}, found '{}'", problem, count));
    table.devices.push_back(*parseNumber<int64_t>(count));
  }
  return table;
}

void DeviceTable::print(Trainer &trainer, const RunOptions &options) const {
  if (options.cluster.empty())
    throw userError("--devices: a list needs --cluster FILE, the hardware to compare");
  const std::vector<std::string> files = clusters.empty() ? std::vector{options.cluster} : clusters;
  std::vector<Row> rows;
  trainer.shareSearches();
  {
    const InterruptGuard guard; // ends the search of a row, and the table after that row
    for (const std::string &file : files)
      for (const int64_t count : devices.empty() ? std::vector{options.devices} : devices)
        if (rows.empty() || !InterruptGuard::interrupted())
          rows.push_back(
              planned(trainer, options, count ? count : partitioner::Cluster::load(file).deviceCount(), file));
  }
  const auto first = std::ranges::find_if(rows, [](const Row &row) { return row.step > 0; });
  if (first == rows.end())
    throw environmentError(rows[0].problem);
  const double base = first->samplesPerSecond / static_cast<double>(first->devices);
  const bool several = files.size() > 1;
  Json list = Json::array();
  if (!options.json)
    std::puts(fmt::format("{:>7}  {}{:>10}  {:>9}  {:>10}  {:>9}  {}{}", "devices",
                          several ? fmt::format("{:<16}", "cluster") : "", "step, ms", "samples/s", "efficiency",
                          "GiB, most", options.samples ? "   hours  device-hours  " : "", "strategy")
                  .c_str());
  for (const Row &row : rows) {
    const double efficiency = base > 0 ? row.samplesPerSecond / static_cast<double>(row.devices) / base : 0,
                 hours = options.samples && row.samplesPerSecond > 0
                             ? static_cast<double>(*options.samples) / row.samplesPerSecond / 3600
                             : 0;
    Json json{{"devices", row.devices}, {"cluster", row.cluster}};
    if (row.step == 0) {
      json["problem"] = row.problem;
      if (!options.json)
        std::puts(
            fmt::format("{:>7}  {}{}", row.devices, several ? fmt::format("{:<16}", row.cluster) : "", row.problem)
                .c_str());
    } else {
      json.update({{"step_ms", row.step * 1e3},
                   {"samples_per_s", row.samplesPerSecond},
                   {"efficiency", efficiency},
                   {"peak_bytes", row.memory.needed},
                   {"capacity_bytes", row.memory.capacity},
                   {"strategy", row.strategy}});
      if (options.samples)
        json.update({{"hours", hours}, {"device_hours", hours * static_cast<double>(row.devices)}});
      if (!options.json)
        std::puts(fmt::format("{:>7}  {}{:>10.4g}  {:>9.4g}  {:>9.1f}%  {:>9.2f}  {}{}", row.devices,
                              several ? fmt::format("{:<16}", row.cluster) : "", row.step * 1e3, row.samplesPerSecond,
                              100 * efficiency, static_cast<double>(row.memory.needed) / (1 << 30),
                              options.samples ? fmt::format("{:>8.4g}  {:>12.5g}  ", hours,
                                                            hours * static_cast<double>(row.devices))
                                              : "",
                              row.strategy)
                      .c_str());
    }
    list.push_back(std::move(json));
  }
  if (options.json)
    std::puts(jsonText(Json{{"rows", std::move(list)}}).c_str());
}

} // namespace cleave
