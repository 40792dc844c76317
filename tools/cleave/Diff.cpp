// cleave diff: the differences between two plans, what each decision costs alone, and what changed in the model's code.
// Exit status 0 in any case; --json prints an empty list for equal plans.
#include "partitioner/strategy/Decisions.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/DecisionEffects.h"
#include "tools/cleave/ModelChanges.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <tuple>

namespace cleave::tool {
namespace {

struct Change {
  std::string what, a, b;
  std::string effect = {}; ///< of a decision alone, as text
};

class Differ {
public:
  template <typename T> void compare(const std::string &what, const T &a, const T &b) {
    if (a != b)
      changes.push_back({what, fmt::format("{}", a), fmt::format("{}", b)});
  }
  std::vector<Change> changes;
};

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
  differ.compare("mesh", partitioner::meshText(a.mesh), partitioner::meshText(b.mesh));
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

static nlohmann::ordered_json diffJson(const PlanSummary &a, const PlanSummary &b, const std::vector<Change> &changes) {
  auto list = nlohmann::ordered_json::array();
  for (const Change &change : changes)
    list.push_back({{"what", change.what}, {"a", change.a}, {"b", change.b}});
  nlohmann::ordered_json out;
  out["step_ms"] = nlohmann::ordered_json::array({stepMilliseconds(a), stepMilliseconds(b)});
  out["peak_bytes"] = nlohmann::ordered_json::array({mostBytes(a), mostBytes(b)});
  out["changes"] = std::move(list);
  return out;
}

nlohmann::ordered_json diffJson(const PlanSummary &a, const PlanSummary &b) {
  return diffJson(a, b, compareReports(a, b));
}

/// What a decision alone would make of the first plan is on a line of its own, below the decision.
static void printChanges(const std::vector<Change> &changes, const std::string &first, const std::string &second) {
  size_t what = 0, left = first.size();
  for (const Change &change : changes) {
    what = std::max(what, change.what.size());
    left = std::max(left, change.a.size());
  }
  fmt::print("{:<{}}  {:<{}}  {}\n", "", what, first, left, second);
  for (const Change &change : changes) {
    fmt::print("{:<{}}  {:<{}}  {}\n", change.what, what, change.a, left, change.b);
    if (!change.effect.empty())
      fmt::print("    {}\n", change.effect);
  }
}

void printDiff(const PlanSummary &a, const PlanSummary &b, const std::string &first, const std::string &second) {
  const std::vector<Change> changes = compareReports(a, b);
  if (changes.empty())
    fmt::print("the plans are equal ({})\n", a.hash.substr(0, 6));
  else
    printChanges(changes, first, second);
}

// ---- decisions -----------------------------------------------------------------------------------------------------

namespace {

/// "alone 1492 ms (-5.6%), memory +5,961 MiB, collectives -320 MiB".
std::string effectText(const DecisionChange &change, const PlanCosts &before) {
  if (!change.why.empty())
    return "not alone: " + change.why;
  if (!change.alone)
    return "";
  std::string out = "alone";
  if (before.step && change.alone->step)
    out += fmt::format(" {:.4g} ms ({:+.1f}%)", inMs(*change.alone->step),
                       *before.step > 0 ? 100 * (*change.alone->step / *before.step - 1) : 0);
  const auto add = [&](const char *what, uint64_t from, uint64_t to) {
    if (from != to)
      out += fmt::format("{} {} {}{} MiB", out == "alone" ? "" : ",", what, to > from ? "+" : "-",
                         mebibytes(to > from ? double(to - from) : double(from - to)));
  };
  add("memory", before.peakBytes, change.alone->peakBytes);
  add("messages", before.messageBytes, change.alone->messageBytes);
  add("collectives", before.collectiveBytes, change.alone->collectiveBytes);
  if (!change.brings.empty())
    out += fmt::format(", with {}", fmt::join(change.brings, " and "));
  return out == "alone" ? "alone changes neither memory nor messages" : out;
}

std::string nameOf(const DecisionChange &change) {
  return change.path.empty() ? change.decision : fmt::format("{} of {}", change.decision, change.path);
}

void addCosts(nlohmann::ordered_json &entry, const DecisionChange &change, const PlanCosts &before) {
  const auto pair = [](auto a, auto b) { return nlohmann::ordered_json::array({a, b}); };
  if (change.alone) {
    const auto ms = [](const std::optional<double> &step) {
      return step ? nlohmann::ordered_json(inMs(*step)) : nlohmann::ordered_json(nullptr);
    };
    entry["step_ms"] = pair(ms(before.step), ms(change.alone->step));
    entry["peak_bytes"] = pair(before.peakBytes, change.alone->peakBytes);
    entry["message_bytes"] = pair(before.messageBytes, change.alone->messageBytes);
    entry["collective_bytes"] = pair(before.collectiveBytes, change.alone->collectiveBytes);
  }
  if (!change.brings.empty())
    entry["with"] = change.brings;
  if (!change.why.empty())
    entry["why"] = change.why;
}

/// What two plan files differ in.
struct PlanDiff {
  PlanSummary a, b;
  std::vector<DecisionChange> decisions;
  std::vector<ModelChange> model;
  std::vector<Change> facts; ///< besides the decisions
  std::string hint;          ///< why there are no effects
};

PlanDiff planDiff(const std::string &first, const std::string &second, const std::string &program) {
  const auto a = loadSound(first), b = loadSound(second);
  PlanDiff found{summaryAndPrediction(first, *a), summaryAndPrediction(second, *b), {}, {}, {}, {}};
  if (found.a.hash == found.b.hash)
    return found;
  found.facts = compareReports(found.a, found.b);
  if (found.a.model != found.b.model)
    return found;
  found.decisions = decisionChanges(*a, *b);
  found.model = modelChanges(a->plan(), b->plan(), found.decisions.empty());
  std::erase_if(found.facts, [&](const Change &fact) {
    return fact.what == "stages" || std::ranges::find(found.decisions, fact.what, nameOf) != found.decisions.end();
  });
  if (found.decisions.empty())
    return found;
  try {
    const Replanner planner(first, *a, program);
    addEffects(found.decisions, *a, planner);
  } catch (const Error &error) {
    if (error.status != Status::User || !program.empty())
      throw;
    found.hint = error.what();
  }
  return found;
}

void printModel(const std::vector<ModelChange> &changes) {
  size_t path = 0;
  for (const ModelChange &one : changes)
    path = std::max(path, one.path.size() + (one.times > 1 ? 2 + std::to_string(one.times).size() + 1 : 0));
  fmt::print("\nchanged in the model:\n");
  for (const ModelChange &one : changes) {
    const std::string name = one.times > 1 ? fmt::format("{} ({})", one.path, one.times) : one.path;
    const std::string how = one.a.empty() ? one.b : one.b.empty() ? one.a : one.a + " -> " + one.b;
    fmt::print("  {:<7}  {:<{}}  {}{}\n", one.what, name, path, how,
               one.location.empty() ? "" : fmt::format("  {}", one.location));
  }
}

void printComparison(const PlanDiff &found, const std::string &first, const std::string &second) {
  std::vector<Change> changes;
  const PlanCosts before = costsOf(found.a);
  for (const DecisionChange &one : found.decisions)
    changes.push_back({nameOf(one), one.from, one.to, effectText(one, before)});
  changes.insert(changes.end(), found.facts.begin(), found.facts.end());
  if (changes.empty())
    fmt::print("the plans are equal ({})\n", found.a.hash.substr(0, 6));
  else
    printChanges(changes, first, second);
  if (!found.model.empty())
    printModel(found.model);
  if (!found.hint.empty())
    fmt::print("\nwhat each decision costs alone: {}\n", found.hint);
}

nlohmann::ordered_json comparisonJson(const PlanDiff &found) {
  nlohmann::ordered_json out = diffJson(found.a, found.b, found.facts);
  auto list = nlohmann::ordered_json::array();
  const PlanCosts before = costsOf(found.a);
  for (const DecisionChange &one : found.decisions) {
    nlohmann::ordered_json &entry = list.emplace_back(
        nlohmann::ordered_json{{"what", nameOf(one)}, {"a", one.from}, {"b", one.to}, {"decision", one.decision}});
    if (!one.path.empty())
      entry["path"] = one.path;
    entry["from"] = one.from, entry["to"] = one.to;
    addCosts(entry, one, before);
  }
  for (auto &fact : out["changes"])
    list.push_back(std::move(fact));
  out["changes"] = std::move(list);
  auto model = nlohmann::ordered_json::array();
  for (const ModelChange &one : found.model)
    model.push_back({{"path", one.path},
                     {"what", one.what},
                     {"a", one.a},
                     {"b", one.b},
                     {"times", one.times},
                     {"location", one.location}});
  out["model"] = std::move(model);
  if (!found.hint.empty())
    out["hint"] = found.hint;
  return out;
}

} // namespace

int diff(int argc, char **argv) {
  CLI::App app{"Shows the differences between two plans, and what each decision of the second would make of the first.",
               "cleave diff"};
  std::string first, second, program;
  bool json = false;
  app.add_option("a", first, "plan file")->required()->type_name("A.plan");
  app.add_option("b", second, "plan file")->required()->type_name("B.plan");
  app.add_option("--program", program, "the program that made the first plan (default: beside cleave, or on PATH)")
      ->type_name("PATH");
  app.add_flag("--json", json, "as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const PlanDiff found = planDiff(first, second, program);
  if (json)
    fmt::print("{}\n", jsonText(comparisonJson(found)));
  else
    printComparison(found, first, second);
  return 0;
}

} // namespace cleave::tool
