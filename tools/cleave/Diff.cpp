// cleave diff: the differences between two plans. Exit status 0 in any case; --json prints an empty list for equal
// plans.
#include "runtime/base/JsonText.h"
#include "runtime/options/CommandLine.h"
#include "tools/cleave/Commands.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

namespace cleave::tool {
namespace {

struct Change {
  std::string what, a, b;
};

class Differ {
public:
  template <typename T> void compare(const std::string &what, const T &a, const T &b) {
    if (a != b)
      changes.push_back({what, fmt::format("{}", a), fmt::format("{}", b)});
  }
  std::vector<Change> changes;
};

std::string meshText(const PlanSummary &r) {
  if (r.order == std::vector<std::string>{"pp", "dp", "tp"})
    return fmt::format("dp={},tp={},pp={}", r.dp, r.tp, r.pp);
  std::string text;
  for (const std::string &axis : r.order)
    text += fmt::format("{}{}={}", text.empty() ? "" : "/", axis, axis == "pp" ? r.pp : axis == "dp" ? r.dp : r.tp);
  return text;
}

std::string stageText(const PlanSummary &r) {
  std::string out;
  for (const auto &stage : r.stages)
    out += (out.empty() ? "" : " | ") + layerRanges(stage.layers);
  return out;
}

using Pair = std::pair<std::string, std::string>;

/// Describes the sharding of an optimizer state, relative to its parameter's if they are equal.
std::string besideParameter(const std::string &state, const std::string &parameter) {
  return state.empty() ? "absent" : state == parameter ? "as its parameter" : state;
}

/// Merges equal differences, in repeated layers or between a parameter and its optimizer states, into one line.
void addFolded(const std::map<std::string, Pair> &all, const std::map<std::string, std::string> &owners,
               Differ &differ) {
  struct Line {
    std::string first, folded; ///< name of a single tensor, and pattern for several
    Pair both;
    int64_t count = 0;
  };
  std::vector<Line> lines;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> place;
  for (const auto &[name, both] : all) {
    if (both.first == both.second)
      continue;
    Line line{name, layerPattern(name), {besideParameter(both.first, ""), besideParameter(both.second, "")}, 0};
    const auto owner = owners.find(name);
    if (const auto parameter = owner == owners.end() ? all.end() : all.find(owner->second); parameter != all.end()) {
      const auto &[a, b] = parameter->second;
      line.both = {besideParameter(both.first, a), besideParameter(both.second, b)};
      const bool told = line.both.first != both.first && line.both.second != both.second;
      line.folded = told ? "optimizer state" : "optimizer state of " + layerPattern(owner->second);
    }
    const auto [it, added] = place.emplace(std::tuple(line.folded, line.both.first, line.both.second), lines.size());
    if (added)
      lines.push_back(line);
    ++lines[it->second].count;
  }
  for (const Line &line : lines)
    differ.changes.push_back({line.count == 1 ? line.first : fmt::format("{} ({})", line.folded, line.count),
                              line.both.first, line.both.second});
}

void compareTensors(const PlanSummary &a, const PlanSummary &b, Differ &differ) {
  std::map<std::string, Pair> all;
  std::map<std::string, std::string> owners;
  const auto describe = [](const PlanSummary::Tensor &t) {
    return fmt::format("[{}] {}", fmt::join(t.shape, ", "), t.sharding);
  };
  for (const auto &tensor : a.tensors)
    all[tensor.name].first = describe(tensor);
  for (const auto &tensor : b.tensors)
    all[tensor.name].second = describe(tensor);
  for (const PlanSummary *report : {&a, &b})
    for (const auto &tensor : report->tensors)
      if (!tensor.parameter.empty())
        owners[tensor.name] = tensor.parameter;
  addFolded(all, owners, differ);
}

void compareCollectives(const PlanSummary &a, const PlanSummary &b, Differ &differ) {
  std::map<std::string, std::pair<std::string, std::string>> all;
  const auto describe = [](const PlanSummary::Collective &c) {
    return fmt::format("{} calls, {} MiB", c.count, mebibytes(double(c.bytes)));
  };
  const auto key = [](const PlanSummary::Collective &c) {
    return fmt::format("{} of {} over {}", c.kind, c.source, c.axis);
  };
  for (const auto &entry : a.collectives)
    all[key(entry)].first = describe(entry);
  for (const auto &entry : b.collectives)
    all[key(entry)].second = describe(entry);
  for (const auto &[name, both] : all)
    differ.compare(name, both.first.empty() ? "none" : both.first, both.second.empty() ? "none" : both.second);
  const auto sent = [](const PlanSummary &r) {
    uint64_t bytes = 0;
    for (const auto &message : r.messages)
      bytes += message.bytes;
    return mebibytes(double(bytes)) + " MiB";
  };
  differ.compare("messages between stages", sent(a), sent(b));
}

uint64_t mostBytes(const PlanSummary &r) {
  return r.peakBytes.empty() ? 0 : *std::max_element(r.peakBytes.begin(), r.peakBytes.end());
}

std::vector<Change> compareReports(const PlanSummary &a, const PlanSummary &b) {
  Differ differ;
  differ.compare("model", a.model, b.model);
  differ.compare("mesh", meshText(a), meshText(b));
  differ.compare("schedule", a.schedule, b.schedule);
  differ.compare("microbatches", a.microbatches, b.microbatches);
  differ.compare("batch", a.batch, b.batch);
  differ.compare("batch of evaluation", a.evalBatch, b.evalBatch);
  differ.compare("seed", a.seed, b.seed);
  differ.compare("backend", a.backend, b.backend);
  differ.compare("target", a.target, b.target);
  differ.compare("threads", a.threads, b.threads);
  differ.compare("stages", stageText(a), stageText(b));
  const auto step = [](const PlanSummary &r) {
    return r.predicted ? fmt::format("{:.4g}", r.predicted->step * 1e3) : "none";
  };
  differ.compare("predicted step, ms", step(a), step(b));
  if (mostBytes(a) != mostBytes(b))
    differ.changes.push_back({"peak memory, MiB", mebibytes(double(mostBytes(a))), mebibytes(double(mostBytes(b)))});
  compareCollectives(a, b, differ);
  compareTensors(a, b, differ);
  differ.compare("programs", a.programs, b.programs);
  if (differ.changes.empty() && a.hash != b.hash)
    differ.changes.push_back({"content", a.hash.substr(0, 6), b.hash.substr(0, 6)});
  return differ.changes;
}

nlohmann::ordered_json stepMilliseconds(const PlanSummary &report) {
  return report.predicted ? nlohmann::ordered_json(report.predicted->step * 1e3) : nullptr;
}

} // namespace

nlohmann::ordered_json diffJson(const PlanSummary &a, const PlanSummary &b) {
  auto list = nlohmann::ordered_json::array();
  for (const Change &change : compareReports(a, b))
    list.push_back({{"what", change.what}, {"a", change.a}, {"b", change.b}});
  nlohmann::ordered_json out;
  out["step_ms"] = nlohmann::ordered_json::array({stepMilliseconds(a), stepMilliseconds(b)});
  out["peak_bytes"] = nlohmann::ordered_json::array({mostBytes(a), mostBytes(b)});
  out["changes"] = std::move(list);
  return out;
}

void printDiff(const PlanSummary &a, const PlanSummary &b, const std::string &first, const std::string &second) {
  const std::vector<Change> changes = compareReports(a, b);
  if (changes.empty()) {
    fmt::print("the plans are equal ({})\n", a.hash.substr(0, 6));
    return;
  }
  size_t what = 0, left = first.size();
  for (const Change &change : changes) {
    what = std::max(what, change.what.size());
    left = std::max(left, change.a.size());
  }
  fmt::print("{:<{}}  {:<{}}  {}\n", "", what, first, left, second);
  for (const Change &change : changes)
    fmt::print("{:<{}}  {:<{}}  {}\n", change.what, what, change.a, left, change.b);
}

int diff(int argc, char **argv) {
  CLI::App app{"Shows the differences between two plans.", "cleave diff"};
  std::string first, second;
  bool json = false;
  app.add_option("a", first, "plan file")->required()->type_name("A.plan");
  app.add_option("b", second, "plan file")->required()->type_name("B.plan");
  app.add_flag("--json", json, "as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const PlanSummary a = summaryAndPrediction(first, *loadSound(first)),
                    b = summaryAndPrediction(second, *loadSound(second));
  if (json)
    fmt::print("{}\n", jsonText(diffJson(a, b)));
  else
    printDiff(a, b, first, second);
  return 0;
}

} // namespace cleave::tool
