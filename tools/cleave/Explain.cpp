// cleave explain: why a plan is as it is, and what would change it.
#include "partitioner/cluster/FileConstants.h"
#include "partitioner/simulate/Breakdown.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/Parts.h"
#include "runtime/options/CommandLine.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/SimulatePlan.h"
#include "tools/cleave/WhatIf.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>

namespace cleave::tool {

using namespace partitioner;
using Json = nlohmann::ordered_json;

namespace {

constexpr double worthMeasuring = 0.01; ///< of a step
constexpr size_t mostExplained = 8;

struct Explained {
  std::string file;
  std::shared_ptr<const PlanFile> plan;
  Cluster cluster;
  Simulation simulation;
  Breakdown breakdown;
};

Explained explained(const std::string &file, std::shared_ptr<const PlanFile> plan, Cluster cluster) {
  Simulation simulation = simulate(plan->plan(), cluster, {.timeline = true});
  Breakdown breakdown = breakdownOf(plan->plan(), cluster, simulation);
  return {file, std::move(plan), std::move(cluster), std::move(simulation), std::move(breakdown)};
}

Explained explained(const std::string &file) {
  auto plan = loadSound(file);
  Cluster cluster = clusterOf(plan->plan(), file, "");
  return explained(file, std::move(plan), std::move(cluster));
}

// ---- where time and memory go --------------------------------------------------------------------------------------

struct Term {
  std::string what;
  double seconds = 0;
};

/// What the step of the rank that computes longest is made of: computation by class, each axis's communication while
/// nothing is computed, and waiting.
std::vector<Term> termsOf(const Explained &e) {
  std::vector<Term> terms;
  const ClassTimes &times = e.breakdown.times;
  for (size_t kind = 0; kind < workClassCount; ++kind)
    if (times.byWork[kind] > 0)
      terms.push_back({workClassName(static_cast<WorkClass>(kind)), times.byWork[kind]});
  for (const AxisTime &axis : e.breakdown.axes)
    if (axis.exposed > 0)
      terms.push_back({fmt::format("communication over {}", axis.axis), axis.exposed});
  if (times.idle > 0)
    terms.push_back({"waiting for other ranks", times.idle});
  std::ranges::stable_sort(terms, std::greater(), &Term::seconds);
  return terms;
}

std::vector<int64_t> stagesOf(const plan::Plan &plan, uint32_t rank) {
  std::vector<int64_t> stages;
  for (uint32_t s = 0; plan.stages() && s < plan.stages()->size(); ++s)
    if (const auto *ranks = plan.stages()->Get(s)->ranks())
      if (std::find(ranks->begin(), ranks->end(), rank) != ranks->end())
        stages.push_back(s);
  return stages;
}

/// The pattern of a path; of each part where ops of several modules are fused.
std::string foldedPath(const std::string &path) {
  std::string folded;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(" + ", at), path.size());
    folded += (at ? " + " : "") + layerPattern(path.substr(at, end - at));
    at = end + 3;
  }
  return folded;
}

/// Steps of repeated layers as one.
std::vector<StepTime> foldedSteps(const std::vector<StepTime> &steps) {
  std::map<std::pair<std::string, std::string>, StepTime> folded;
  for (const StepTime &step : steps) {
    StepTime &all = folded[{step.kind, foldedPath(step.path)}];
    if (all.kind.empty())
      all = {step.kind, foldedPath(step.path), step.location, step.communicates, 0};
    all.seconds += step.seconds;
  }
  std::vector<StepTime> list;
  for (auto &[key, step] : folded)
    list.push_back(std::move(step));
  std::ranges::stable_sort(list, std::greater(), &StepTime::seconds);
  return list;
}

std::string bottleneckText(const Explained &e, const Term &largest) {
  const bool waits = largest.what == "waiting for other ranks", sends = largest.what.starts_with("communication");
  const double share = e.simulation.stepSeconds > 0 ? largest.seconds / e.simulation.stepSeconds : 0;
  return fmt::format("{} of rank {}, which computes longest: {:.3g} ms, {:.0f}% of the step{}",
                     waits   ? "waiting"
                     : sends ? largest.what
                             : "computation (" + largest.what + ")",
                     e.breakdown.rank, inMs(largest.seconds), 100 * share,
                     waits ? "; more microbatches or another schedule would fill it" : "");
}

std::vector<std::pair<std::string, KeptBytes>> foldedKept(const std::vector<KeptBytes> &kept) {
  std::map<std::string, KeptBytes> folded;
  for (const KeptBytes &one : kept) {
    KeptBytes &all = folded[foldedPath(one.path)];
    all.bytes += one.all();
    all.inFlight = std::max(all.inFlight, one.inFlight);
  }
  std::vector<std::pair<std::string, KeptBytes>> list(folded.begin(), folded.end());
  std::ranges::stable_sort(list, std::greater(), [](const auto &one) { return one.second.bytes; });
  return list;
}

std::vector<std::pair<const char *, uint64_t>> memoryTerms(const MemoryParts &parts) {
  return {{"parameters", parts.parameters},   {"gradients", parts.gradients},     {"optimizer state", parts.states},
          {"activations", parts.activations}, {"inputs", parts.inputs},           {"workspace", parts.workspace},
          {"attention scores", parts.scores}, {"copies and others", parts.others}};
}

// ---- output --------------------------------------------------------------------------------------------------------

Json explainJson(const Explained &e, const std::vector<OtherPlan> &others) {
  const std::vector<Term> terms = termsOf(e);
  Json out{{"step_ms", inMs(e.simulation.stepSeconds)}, {"bubble_fraction", e.simulation.bubbleFraction}};
  Json bottleneck{{"rank", e.breakdown.rank},
                  {"stages", stagesOf(e.plan->plan(), e.breakdown.rank)},
                  {"term", terms.empty() ? "" : terms[0].what},
                  {"ms", terms.empty() ? 0 : inMs(terms[0].seconds)},
                  {"text", terms.empty() ? "" : bottleneckText(e, terms[0])}};
  const std::vector<StepTime> steps = foldedSteps(e.breakdown.steps);
  Json list = Json::array();
  for (const StepTime &step : steps)
    if (list.size() < mostExplained)
      list.push_back({{"kind", step.kind},
                      {"path", step.path},
                      {"ms", inMs(step.seconds)},
                      {"communicates", step.communicates},
                      {"location", step.location}});
  if (!list.empty())
    bottleneck["op"] = list[0];
  out["bottleneck"] = std::move(bottleneck);
  Json time = Json::array(), axes = Json::array(), memory, kept = Json::array(), alternatives = Json::array();
  for (const Term &term : terms)
    time.push_back({{"what", term.what}, {"ms", inMs(term.seconds)}});
  for (const AxisTime &axis : e.breakdown.axes)
    axes.push_back({{"axis", axis.axis}, {"exposed_ms", inMs(axis.exposed)}, {"hidden_ms", inMs(axis.hidden)}});
  for (const auto &[what, bytes] : memoryTerms(e.breakdown.parts))
    memory[what] = bytes;
  for (const auto &[path, bytes] : foldedKept(e.breakdown.kept))
    kept.push_back({{"path", path}, {"bytes", bytes.bytes}, {"microbatches", bytes.inFlight}});
  for (const OtherPlan &one : others)
    alternatives.push_back({{"decision", one.decision},
                            {"value", one.value},
                            {"pinned", fmt::format("{} {}", one.decision, one.value)},
                            {"step_ms", one.step > 0 ? Json(inMs(one.step)) : Json(nullptr)},
                            {"peak_bytes", one.peakBytes},
                            {"capacity_bytes", one.capacity},
                            {"reason", one.reason},
                            {"matters", one.matters}});
  out["time"] = std::move(time), out["axes"] = std::move(axes), out["steps"] = std::move(list);
  out["memory"] = {{"rank", e.breakdown.memory.rank},
                   {"needed_bytes", e.breakdown.memory.needed},
                   {"capacity_bytes", e.breakdown.memory.capacity},
                   {"parts", std::move(memory)},
                   {"kept", std::move(kept)}};
  out["alternatives"] = std::move(alternatives);
  return out;
}

void printTime(const Explained &e) {
  const std::vector<Term> terms = termsOf(e);
  fmt::print("a step takes {:.4g} ms; rank {} computes longest (stage {}):\n", inMs(e.simulation.stepSeconds),
             e.breakdown.rank, fmt::join(stagesOf(e.plan->plan(), e.breakdown.rank), ", "));
  for (const Term &term : terms)
    fmt::print("  {:<28} {:>10.2f} ms  {:>5.1f}%\n", term.what, inMs(term.seconds),
               e.simulation.stepSeconds > 0 ? 100 * term.seconds / e.simulation.stepSeconds : 0);
  for (const AxisTime &axis : e.breakdown.axes)
    if (axis.hidden > 0)
      fmt::print("  {:<28} {:>10.2f} ms  behind computation\n", "over " + axis.axis + ", hidden", inMs(axis.hidden));
  if (!terms.empty())
    fmt::print("bottleneck: {}\n", bottleneckText(e, terms[0]));
  fmt::print("\nsteps that take longest on rank {}:\n", e.breakdown.rank);
  size_t shown = 0;
  for (const StepTime &step : foldedSteps(e.breakdown.steps))
    if (shown++ < mostExplained)
      fmt::print("  {:<10} {:<36} {:>10.2f} ms  {}\n", step.kind, step.path.empty() ? "-" : step.path,
                 inMs(step.seconds), step.location);
}

void printMemory(const Explained &e) {
  const MemoryUse &use = e.breakdown.memory;
  const double mebibyte = 1 << 20;
  fmt::print("\nmemory: rank {} needs {} of {} MiB:\n", use.rank, mebibytes(double(use.needed)),
             mebibytes(double(use.capacity)));
  for (const auto &[what, bytes] : memoryTerms(e.breakdown.parts))
    if (double(bytes) >= mebibyte / 10)
      fmt::print("  {:<28} {:>10} MiB\n", what, mebibytes(double(bytes)));
  const auto kept = foldedKept(e.breakdown.kept);
  if (!kept.empty())
    fmt::print("kept from the forward to the backward pass, all microbatches in flight:\n");
  for (size_t i = 0; i < std::min(kept.size(), mostExplained); ++i)
    fmt::print("  {:<36} {:>10} MiB  {} in flight\n", kept[i].first.empty() ? "-" : kept[i].first,
               mebibytes(double(kept[i].second.bytes)), kept[i].second.inFlight);
}

void printAlternatives(const std::vector<OtherPlan> &others) {
  fmt::print("\nother plans, each with one decision changed:\n");
  if (others.empty())
    fmt::print("  there are none\n");
  for (const OtherPlan &one : others)
    fmt::print("  {:<40} {:>10}  {:>9} MiB  {}\n", fmt::format("{} {}", one.decision, one.value),
               one.step > 0 ? fmt::format("{:.4g} ms", inMs(one.step)) : "-", mebibytes(double(one.peakBytes)),
               one.reason);
}

// ---- what if -------------------------------------------------------------------------------------------------------

Json whatIf(const Explained &e, const Replanner &planner, const std::string &words, bool print) {
  const Answer made = answer(planner, parseWhatIf(words, e.cluster));
  Json out{{"change", words}};
  if (!made.problem.empty())
    out["problem"] = made.problem;
  if (print && !made.problem.empty())
    fmt::print("\nwith {}: {}\n", words, made.problem);
  if (!made.plan)
    return out;
  const PlanSummary before = summaryAndPrediction(e.file, *e.plan),
                    after = summaryAndPrediction("the new plan", *made.plan);
  const double a = before.predicted->step, b = after.predicted->step;
  out["searched"] = made.searched;
  out.update(diffJson(before, after));
  if (print) {
    fmt::print("\nwith {}{}: {:.4g} ms a step instead of {:.4g} ({:+.1f}%)\n", words,
               made.searched ? " and all else found anew" : "", inMs(b), inMs(a), a > 0 ? 100 * (b / a - 1) : 0);
    printDiff(before, after, "now", "then");
  }
  return out;
}

// ---- sensitivity ---------------------------------------------------------------------------------------------------

/// The constants of a cluster file that are off together, by family, in the order of the file.
std::vector<std::pair<std::string, std::vector<FileConstant>>> familiesOf(const Cluster &cluster) {
  std::vector<std::pair<std::string, std::vector<FileConstant>>> all;
  for (FileConstant &one : partitioner::constantsOf(cluster)) {
    auto found = std::ranges::find(all, one.family, [](const auto &entry) { return entry.first; });
    if (found == all.end())
      found = all.insert(all.end(), {one.family, {}});
    found->second.push_back(std::move(one));
  }
  return all;
}

/// For each constant and error: what the chosen plan loses against the plan for the changed cluster. One run of the
/// program searches for all of them, because searches for the same model share what they measure.
Json sensitivity(const Explained &e, const Replanner &planner, bool print) {
  if (!e.plan->plan().search())
    throw userError(e.file + ": --sensitivity needs a plan that a search found: its strategy was given");
  constexpr std::pair<const char *, double> errors[] = {{"-30%", 0.7}, {"-10%", 0.9}, {"+10%", 1.1}, {"+30%", 1.3}};
  const auto families = familiesOf(e.cluster);
  std::vector<std::string> files;
  std::vector<double> kept;
  for (const auto &[name, constants] : families)
    for (const auto &[error, factor] : errors) {
      Cluster changed = e.cluster;
      for (const FileConstant &one : constants)
        one.set(changed, one.value * factor);
      files.push_back(planner.file(fmt::format("cluster{}.toml", files.size()), changed.toToml()));
      kept.push_back(simulate(e.plan->plan(), changed).stepSeconds);
    }
  const std::vector<double> best = planner.bestSteps(files);
  struct Row {
    std::string name;
    double worst = 0;
    Json losses = Json::object();
    std::string text = {};
  };
  std::vector<Row> rows;
  for (size_t at = 0; const auto &[name, constants] : families) {
    Row &row = rows.emplace_back(Row{name});
    for (const auto &[error, factor] : errors) {
      const double loss = best.at(at) > 0 ? std::max(0.0, kept[at] / best[at] - 1) : 0;
      ++at;
      row.worst = std::max(row.worst, loss);
      row.losses[error] = loss;
      row.text += fmt::format("  {:>7}", loss < 0.0005 ? "best" : fmt::format("{:.1f}%", 100 * loss));
    }
  }
  std::ranges::stable_sort(rows, std::greater(), &Row::worst);
  Json list = Json::array();
  for (const Row &row : rows)
    list.push_back({{"constant", row.name}, {"worst_loss", row.worst}, {"losses", row.losses}});
  const bool matters = !rows.empty() && rows[0].worst > worthMeasuring;
  if (print) {
    fmt::print("\nwhat this plan loses against the best one if a constant of the cluster is off by\n{:<28}", "");
    for (const auto &[error, factor] : errors)
      fmt::print("  {:>7}", error);
    fmt::print("\n");
    for (const Row &row : rows)
      fmt::print("{:<28}{}\n", row.name, row.text);
    fmt::print("{}\n", matters ? fmt::format("measure {} first", rows[0].name)
                               : "no constant matters by more than 1%: the plan stays the best or nearly so");
  }
  return {{"measure_first", matters ? Json(rows[0].name) : Json(nullptr)}, {"constants", std::move(list)}};
}

// ---- one tensor ----------------------------------------------------------------------------------------------------

/// A way to split a parameter: a rule of a strategy file, and its text.
struct SplitOption {
  std::string rule, text;
};

std::vector<SplitOption> splitsOf(const PlanSummary::Tensor &tensor, const PlanSummary &summary) {
  std::vector<SplitOption> all{{"{}", "whole"}};
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    for (const auto &[axis, size] : std::views::reverse(summary.mesh.axes)) // tp first
      if (splitsTensors(axis) && size > 1 && tensor.shape[d] >= size)
        all.push_back({fmt::format("{{ {} = \"{}\" }}", d, axis), fmt::format("dimension {} over {}", d, axis)});
  return all;
}

/// A strategy file with another rule for parameters of this pattern, as the last one, which wins.
std::string withShardRule(const std::string &strategy, const std::string &pattern, const std::string &rule) {
  const std::string key = fmt::format("\"{}\" = ", pattern), head = "[shard]";
  std::string changed, rules;
  bool inside = false;
  for (const std::string &line : partsOf(strategy, '\n')) {
    if (line.starts_with("["))
      inside = line == head;
    if (line == head || line.empty() || (inside && line.starts_with(key)))
      continue;
    (inside ? rules : changed) += line + "\n";
  }
  return fmt::format("{}{}\n{}{}{}\n", changed, head, rules, key, rule);
}

Json explainTensor(const Explained &e, const Replanner &planner, const std::string &path, bool print) {
  const PlanSummary summary = summaryAndPrediction(e.file, *e.plan);
  const auto tensor = std::ranges::find(summary.tensors, path, &PlanSummary::Tensor::name);
  std::vector<std::string> names;
  for (const auto &one : summary.tensors)
    if (one.kind == "parameter" || one.kind == "Parameter")
      names.push_back(one.name);
  if (tensor == summary.tensors.end())
    throw userError(fmt::format("--tensor {}: the plan has no such parameter{}", path, suggestion(path, names)));
  std::string location;
  const std::string module = path.substr(0, std::min(path.rfind('.'), path.size()));
  for (const StepTime &step : e.breakdown.steps)
    if (location.empty() && step.path == module)
      location = step.location;
  const std::string strategy = text(e.plan->plan().strategy());
  Json options = Json::array();
  for (const SplitOption &option : splitsOf(*tensor, summary)) {
    const std::string changed = withShardRule(strategy, layerPattern(path), option.rule);
    Json row{{"split", option.text}, {"step_ms", nullptr}};
    try {
      const auto made = planner.plan({"--strategy", planner.file("strategy.toml", changed)});
      const PlanSummary there = summaryAndPrediction("the new plan", *made);
      const auto now = std::ranges::find(there.tensors, path, &PlanSummary::Tensor::name);
      row["step_ms"] = inMs(there.predicted->step);
      row["peak_bytes"] = *std::ranges::max_element(there.peakBytes);
      const double change = there.predicted->step / e.simulation.stepSeconds - 1;
      row["chosen"] = now != there.tensors.end() && now->sharding == tensor->sharding && std::abs(change) < 1e-6;
    } catch (const Error &error) {
      row["why"] = error.what();
    }
    options.push_back(std::move(row));
  }
  if (print) {
    fmt::print("\n{} {} is split {}{}\n", path, fmt::format("[{}]", fmt::join(tensor->shape, ", ")), tensor->sharding,
               location.empty() ? "" : ", read at " + location);
    for (const Json &row : options)
      fmt::print("  {:<28} {:>10}  {}\n", row["split"].get<std::string>(),
                 row["step_ms"].is_null() ? "-" : fmt::format("{:.4g} ms", row["step_ms"].get<double>()),
                 row.contains("why")         ? row["why"].get<std::string>()
                 : row["chosen"].get<bool>() ? "as in this plan"
                                             : "");
  }
  return {{"path", path},
          {"shape", tensor->shape},
          {"split", tensor->sharding},
          {"location", location},
          {"options", std::move(options)}};
}

} // namespace

int explain(int argc, char **argv) {
  CLI::App app{"Says where the time and memory of a plan go, what the other plans were, and what would change it.",
               "cleave explain"};
  std::string file, program, tensor;
  std::vector<std::string> changes;
  bool json = false, sensitive = false;
  app.add_option("plan", file, "plan file")->required()->type_name("FILE.plan");
  app.add_option("--what-if", changes,
                 "plan anew with one thing changed: \"mesh dp=8\", \"network 400\" (Gb/s between nodes), \"memory 40\" "
                 "(GiB), \"batch 1024\", \"zero 2\"; may be repeated")
      ->type_name("\"WHAT VALUE\"")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--tensor", tensor, "why this parameter is split as it is: its splits, and the step with each")
      ->type_name("PATH");
  app.add_flag("--sensitivity", sensitive,
               "whether the plan is still the best if a constant of the cluster is 10% or 30% off");
  app.add_option("--program", program, "the program that made the plan (default: beside cleave, or on PATH)")
      ->type_name("PATH");
  app.add_flag("--json", json, "as one JSON object");
  if (!parseCommandLine(app, {argv + 1, argv + argc}))
    return 0;
  const Explained e = explained(file);
  for (const std::string &words : changes)
    parseWhatIf(words, e.cluster); // refuses mistakes before any work
  std::vector<OtherPlan> others = otherPlans(*e.plan, e.simulation);
  std::optional<Replanner> planner;
  if (others.empty() || !changes.empty() || sensitive || !tensor.empty() || !program.empty())
    planner.emplace(file, *e.plan, program);
  if (others.empty())
    others = otherPlans(*planner->withAlternatives(), e.simulation);
  Json out = explainJson(e, others);
  if (!json) {
    printTime(e);
    printMemory(e);
    printAlternatives(others);
  }
  Json answers = Json::array();
  for (const std::string &words : changes)
    answers.push_back(whatIf(e, *planner, words, !json));
  if (!answers.empty())
    out["what_if"] = std::move(answers);
  if (!tensor.empty())
    out["tensor"] = explainTensor(e, *planner, tensor, !json);
  if (sensitive)
    out["sensitivity"] = sensitivity(e, *planner, !json);
  if (json)
    fmt::print("{}\n", jsonText(out));
  return 0;
}

} // namespace cleave::tool
