// Reads changes, and compares plans.
#include "tools/cleave/WhatIf.h"

#include "partitioner/strategy/DecisionTable.h"
#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::tool {

using namespace partitioner;

namespace {

constexpr double mattersFrom = 0.01; // of a step
constexpr double gibibyte = 1 << 30;

/// Sets why a plan lost: what grew most.
void setReason(OtherPlan &other, const plan::Alternative &stored, const Simulation &own) {
  const ClassTimes &times = *std::ranges::max_element(own.times, {}, &ClassTimes::busy);
  const double difference = other.step - own.stepSeconds;
  if (other.step == 0) {
    other.reason = fmt::format("does not fit: needs {:.2f} GiB of {:.2f}", double(other.peakBytes) / gibibyte,
                               double(other.capacity) / gibibyte);
  } else if (std::abs(difference) <= mattersFrom * own.stepSeconds) {
    other.reason = "hardly matters";
    other.matters = false;
  } else if (difference < 0) {
    other.reason = "is faster";
  } else {
    const std::pair<double, const char *> grown[] = {{stored.busy() - times.busy, "computation"},
                                                     {stored.communication() - times.communication, "communication"},
                                                     {stored.idle() - times.idle, "waiting"}};
    const auto most = *std::ranges::max_element(grown);
    other.reason = fmt::format("{} +{:.3g} ms", most.second, most.first * 1e3);
  }
}

double positive(const std::string &words, const std::string &value) {
  const std::optional<double> number = parseNumber<double>(value);
  if (!number || !(*number > 0) || !std::isfinite(*number))
    throw userError(fmt::format("--what-if \"{}\": must be a number above 0, found '{}'", words, value));
  return *number;
}

} // namespace

WhatIf parseWhatIf(const std::string &words, const Cluster &cluster) {
  const size_t space = words.find(' ');
  const std::string what = words.substr(0, space),
                    value = space == std::string::npos ? "" : words.substr(words.find_first_not_of(' ', space));
  std::set<std::string> options = {"batch", "devices", "mesh", "precision", "strategy"};
  for (const partitioner::DecisionOption &one : partitioner::decisionOptions())
    if (!one.flag)
      options.emplace(one.option.substr(2));
  if (options.contains(what) && !value.empty())
    return {words, {"--" + what, value}};
  if (what == "sequence" && value == "tp")
    return {words, {"--sequence-parallel"}};
  if (what == "network" && !value.empty()) {
    Cluster changed = cluster;
    if (!changed.network)
      throw userError(fmt::format("--what-if \"{}\": the cluster {} has one node and no network", words, cluster.name));
    changed.network->gbPerS = positive(words, value) / 8; // from Gb/s
    return {words, {}, changed};
  }
  if (what == "memory" && !value.empty()) {
    Cluster changed = cluster;
    for (DeviceKind &kind : changed.devices)
      kind.memoryGib = positive(words, value);
    return {words, {}, changed};
  }
  std::vector<std::string> known{"network", "memory", "sequence"};
  known.insert(known.end(), options.begin(), options.end());
  std::ranges::sort(known);
  throw userError(
      fmt::format("--what-if \"{}\": must be one of {}, and a value, such as \"mesh dp=8\" or \"network 400\" "
                  "(Gb/s between nodes){}",
                  words, fmt::join(known, ", "), suggestion(what, known)));
}

std::vector<OtherPlan> otherPlans(const PlanFile &stored, const Simulation &simulation) {
  std::vector<OtherPlan> all;
  for (uint32_t i = 0; stored.plan().alternatives() && i < stored.plan().alternatives()->size(); ++i) {
    const plan::Alternative &one = *stored.plan().alternatives()->Get(i);
    OtherPlan &other = all.emplace_back(
        OtherPlan{text(one.decision()), text(one.value()), one.step(), one.peak_bytes(), one.capacity(), ""});
    setReason(other, one, simulation);
  }
  return all;
}

Answer answer(const Replanner &planner, const WhatIf &change) {
  std::vector<std::string> options = change.options;
  if (change.cluster) {
    options.emplace_back("--cluster");
    options.push_back(planner.file("cluster.toml", change.cluster->toToml()));
  }
  Answer found;
  const auto attempt = [&] {
    try {
      found.plan = planner.plan(options);
    } catch (const Error &error) {
      if (error.status != Status::Environment)
        throw;
      found.problem = error.what();
    }
    return found.plan != nullptr;
  };
  if (attempt())
    return found;
  options.insert(options.end(), {"--strategy", "auto"});
  const std::string problem = found.problem;
  found.searched = attempt();
  found.problem = problem;
  return found;
}

} // namespace cleave::tool
