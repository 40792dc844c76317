// Compares the requests of plans, and plans anew with one decision of another plan.
#include "tools/cleave/DecisionEffects.h"

#include "partitioner/cluster/Cluster.h"
#include "partitioner/strategy/Differences.h"
#include "runtime/base/Error.h"
#include "runtime/base/JsonText.h"
#include "runtime/checkpoint/TrainingJson.h"
#include "runtime/plan/Inputs.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"
#include "tools/cleave/Commands.h"
#include "tools/cleave/ModelChanges.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::tool {

using namespace partitioner;
using Options = std::vector<std::string>;

namespace {

Decisions strategyOf(const PlanFile &file) {
  return Decisions::parse(text(file.plan().strategy()), "the strategy of " + file.name());
}

ModelNames namesOf(const plan::Plan &plan) {
  ModelNames names;
  for (uint32_t s = 0; s < check::length(plan.stages()); ++s)
    for (uint32_t i = 0; i < check::length(plan.stages()->Get(s)->layers()); ++i)
      names.layers.push_back(text(plan.stages()->Get(s)->layers()->Get(i)));
  for (uint32_t t = 0; t < check::length(plan.tensors()); ++t)
    if (const plan::Tensor &tensor = *plan.tensors()->Get(t);
        tensor.kind() == plan::TensorKind::Parameter || tensor.kind() == plan::TensorKind::Buffer)
      names.tensors.push_back(text(tensor.name()));
  return names;
}

plan::TrainingT trainingIn(const plan::Plan &plan) {
  plan::TrainingT training;
  if (plan.training())
    plan.training()->UnPackTo(&training);
  return training;
}

/// A decision of the request that is one option.
void compare(std::vector<DecisionChange> &found, const std::string &decision, const std::string &from,
             const std::string &to, Options options) {
  if (from != to)
    found.push_back({decision, "", from, to, std::move(options), {}, {}, {}, {}});
}

void compareTraining(const plan::Plan &a, const plan::Plan &b, std::vector<DecisionChange> &found) {
  const plan::TrainingT first = trainingIn(a), second = trainingIn(b);
  const Precision::Words from = precisionOf(first).words(), to = precisionOf(second).words();
  const auto words = [](const Precision::Words &w) {
    return fmt::format("{}{}{}{}", w.type, w.level.empty() ? "" : " " + w.level,
                       w.lossScale.empty() ? "" : ", loss scale " + w.lossScale,
                       w.reduce.empty() ? "" : ", sums in " + w.reduce);
  };
  Options options;
  for (const auto &[option, value] : {std::pair("--precision", to.type),
                                      {"--opt-level", to.level},
                                      {"--loss-scale", to.lossScale},
                                      {"--reduce-dtype", to.reduce}})
    if (!value.empty())
      options.insert(options.end(), {option, value});
  compare(found, "precision", words(from), words(to), options);
  if (first.optimizer && second.optimizer)
    compare(found, "optimizer", optimizerNameOf(first), optimizerNameOf(second),
            {"--optimizer", optimizerNameOf(second)});
}

/// As an option of the model reads it.
std::string optionText(const nlohmann::json &value) {
  if (value.is_string())
    return value.get<std::string>();
  if (!value.is_array())
    return jsonText(value);
  std::string all;
  for (const auto &one : value)
    all += (all.empty() ? "" : ",") + jsonText(one);
  return all;
}

void compareModelOptions(const plan::Plan &a, const plan::Plan &b, std::vector<DecisionChange> &found) {
  const auto optionsOf = [](const plan::Plan &plan) {
    const std::string options = text(plan.options());
    return options.empty() ? nlohmann::json::object() : parseJson(options, "the model's options");
  };
  const nlohmann::json from = optionsOf(a), to = optionsOf(b);
  for (const auto &[key, value] : to.items()) {
    const std::string before = from.contains(key) ? optionText(from[key]) : "none", now = optionText(value);
    compare(found, "option --" + key, before, now, {fmt::format("--{}={}", key, now)}); // a text may begin with a dash
  }
}

void compareClusters(const plan::Plan &a, const plan::Plan &b, std::vector<DecisionChange> &found) {
  const std::string from = text(a.cluster()), to = text(b.cluster());
  if (from == to)
    return;
  const auto name = [](const std::string &toml) {
    return toml.empty() ? std::string("none") : Cluster::parse(toml, "the cluster of the plan").name;
  };
  DecisionChange &made = found.emplace_back(DecisionChange{"cluster", "", name(from), name(to), {}, {}, {}, {}, {}});
  if (made.from == made.to)
    made.to += ", other constants";
  if (to.empty())
    made.why = "the plan is for no cluster";
  else
    made.files = {{"--cluster", to}};
}

} // namespace

PlanCosts costsOf(const PlanSummary &summary) {
  PlanCosts costs;
  if (summary.predicted)
    costs.step = summary.predicted->step;
  if (!summary.peakBytes.empty())
    costs.peakBytes = *std::ranges::max_element(summary.peakBytes);
  for (const auto &message : summary.messages)
    costs.messageBytes += message.bytes;
  for (const auto &collective : summary.collectives)
    costs.collectiveBytes += collective.bytes;
  return costs;
}

std::vector<DecisionChange> decisionChanges(const PlanFile &a, const PlanFile &b) {
  const plan::Plan &first = a.plan(), &second = b.plan();
  std::vector<DecisionChange> found;
  const Decisions before = strategyOf(a), after = strategyOf(b);
  for (Difference &one : differences(before, after, namesOf(first))) {
    DecisionChange &made = found.emplace_back(DecisionChange{
        one.decision, one.path, one.from, one.to, {}, {}, std::move(one.brings), std::move(one.problem), {}});
    if (one.alone)
      made.files = {{"--strategy", one.alone->toToml()}};
  }
  const size_t split = found.size();
  compareTraining(first, second, found);
  if (first.choices() && second.choices()) {
    const auto layout = [](const plan::Plan &plan) { return plan.choices()->channels_last() ? "nhwc" : "nchw"; };
    compare(found, "layout", layout(first), layout(second), {"--layout", layout(second)});
  }
  const auto number = [](int64_t value) { return std::to_string(value); };
  compare(found, "batch", number(first.batch()), number(second.batch()), {"--batch", number(second.batch())});
  compare(found, "batch of evaluation", number(evalBatchOf(first)), number(evalBatchOf(second)),
          {"--eval-batch", number(evalBatchOf(second))});
  compareModelOptions(first, second, found);
  compareClusters(first, second, found);
  for (size_t i = split; i < found.size(); ++i) // the rest of the request has the first plan's split
    if (found[i].why.empty())
      found[i].files.emplace_back("--strategy", before.toToml());
  return found;
}

void addEffects(std::vector<DecisionChange> &changes, const PlanFile &a, const Replanner &planner) {
  const bool kept =
      std::ranges::none_of(changes, [](const DecisionChange &one) { return one.decision.starts_with("option --"); });
  for (DecisionChange &change : changes) {
    if (!change.why.empty())
      continue;
    Options options = change.options;
    for (const auto &[option, content] : change.files)
      options.insert(options.end(), {option, planner.file(option.substr(2) + ".toml", content)});
    try {
      const auto made = planner.plan(options);
      const bool ofModel = change.decision.starts_with("option --");
      if (kept && !ofModel && !modelChanges(a.plan(), made->plan(), false).empty())
        change.why = "the program makes another model than this plan's now";
      else
        change.alone = costsOf(summaryAndPrediction("the new plan", *made));
    } catch (const Error &error) {
      if (error.status == Status::Internal)
        throw;
      change.why = error.what();
    }
  }
}

} // namespace cleave::tool
