// Compares strategies.
#include "partitioner/strategy/Differences.h"

#include "partitioner/schedule/Schedule.h"
#include "partitioner/strategy/DecisionTable.h"
#include "partitioner/strategy/Pattern.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave::partitioner {
namespace {

// ---- values as text ------------------------------------------------------------------------------------------------

std::string dimsText(const std::map<std::string, std::string> &dims) {
  std::vector<std::string> words;
  for (const auto &[dim, axes] : dims)
    if (!axes.empty())
      words.push_back(fmt::format("{} over {}", dim == "heads" ? dim : "dimension " + dim, axes));
  return words.empty() ? "whole" : fmt::format("{}", fmt::join(words, " and "));
}

// ---- what follows from a decision ----------------------------------------------------------------------------------

/// Takes the stages of `b`, or leaves them open, if the strategy has another number of them now.
void adaptStages(Difference &made, const Decisions &b) {
  Decisions &s = *made.alone;
  if (s.stages.empty() || static_cast<int64_t>(s.stages.size()) == s.stageCount())
    return;
  s.stages.clear();
  made.brings.emplace_back("stages");
  if (static_cast<int64_t>(b.stages.size()) == s.stageCount())
    s.stages = b.stages;
}

/// Removes what is of another mesh.
void adaptToMesh(Difference &made, const Decisions &b) {
  Decisions &s = *made.alone;
  if (s.mesh.size(AxisRole::Pipeline) == 1 && (s.chunks > 1 || !s.order.empty())) {
    decisionNamed("schedule")->copy(s, Decisions());
    made.brings.emplace_back("schedule");
  }
  s.order.clear();
  for (const DecisionRow *row : excludedBy(s.mesh, s)) {
    row->copy(s, Decisions());
    made.brings.emplace_back(row->word);
  }
  std::erase_if(s.shard, [](const ShardRule &rule) { return rule.origin == "default" || rule.origin == "search"; });
  std::erase_if(s.ops, [](const OpRules &rules) { return rules.origin == "search"; });
  adaptStages(made, b);
}

// ---- recomputation -------------------------------------------------------------------------------------------------

Recomputation kindOf(const Decisions &s, const std::string &layer, bool lists) {
  Recomputation kind = Recomputation::None;
  for (const RecomputeRule &rule : s.recompute)
    if (rule.pattern == RecomputeRule::everyLayer ? !lists || isListMember(layer) : matches(rule.pattern, layer))
      kind = rule.kind;
  return kind;
}

/// "blocks.0, blocks.1" or "blocks.0 ... blocks.7" for neighbours.
std::string layersText(const std::vector<std::string> &layers) {
  return layers.size() < 3 ? fmt::format("{}", fmt::join(layers, ", "))
                           : fmt::format("{} ... {} ({})", layers.front(), layers.back(), layers.size());
}

/// Adds a rule that wins.
template <class Rules> void setRule(Rules &rules, typename Rules::value_type rule) {
  std::erase_if(rules, [&](const auto &one) { return one.pattern == rule.pattern; });
  rules.push_back(std::move(rule));
}

void compareRecomputation(const Decisions &a, const Decisions &b, const ModelNames &model,
                          std::vector<Difference> &found) {
  const bool lists = std::ranges::any_of(model.layers, isListMember);
  std::map<std::pair<Recomputation, Recomputation>, std::vector<std::string>> groups;
  int64_t counted = 0;
  for (const std::string &layer : model.layers) {
    counted += !lists || isListMember(layer);
    const Recomputation from = kindOf(a, layer, lists), to = kindOf(b, layer, lists);
    if (from != to)
      groups[{from, to}].push_back(layer);
  }
  for (const auto &[kinds, layers] : groups) {
    Difference &made = found.emplace_back(
        Difference{"recompute", static_cast<int64_t>(layers.size()) == counted ? "" : layersText(layers),
                   text(kinds.first), text(kinds.second), a});
    for (const std::string &layer : layers)
      setRule(made.alone->recompute, RecomputeRule{layer, kinds.second});
    if (made.path.empty())
      made.alone->recompute = b.recompute;
  }
}

// ---- shardings -----------------------------------------------------------------------------------------------------

struct Rule {
  std::map<std::string, std::string> dims;
  Origin origin = "default";
  auto operator<=>(const Rule &) const = default;
};

/// The rule of a tensor, without axes that a mesh does not split.
Rule ruleOf(const Decisions &s, const std::string &tensor, const std::vector<const Mesh *> &meshes) {
  Rule found;
  for (const ShardRule &rule : s.shard)
    if (matches(rule.pattern, tensor))
      found = {rule.dims, rule.origin};
  std::erase_if(found.dims, [&](const auto &entry) {
    return entry.second.empty() || std::ranges::any_of(meshes, [&](const Mesh *mesh) {
             return std::ranges::any_of(mesh->axes, [&](const MeshAxis &axis) {
               return axis.size == 1 && entry.second.find(axis.name) != std::string::npos;
             });
           });
  });
  return found;
}

std::string moduleOf(const std::string &tensor) { return tensor.substr(0, std::min(tensor.rfind('.'), tensor.size())); }

using OpTexts = std::map<std::string, std::string>;
/// By pattern of the module path.
std::map<std::string, OpTexts> opsOf(const Decisions &s) {
  std::map<std::string, OpTexts> all;
  for (const OpRules &rules : s.ops)
    for (const auto &[label, decision] : rules.ops)
      all[rules.pattern][label] = decision;
  return all;
}

struct ModuleChange {
  std::vector<std::string> tensors; ///< whole names
  std::set<std::string> from, to;   ///< as text
  bool ops = false;
};

void compareShardings(const Decisions &a, const Decisions &b, const ModelNames &model, std::vector<Difference> &found) {
  const bool sameMesh = a.mesh == b.mesh;
  const std::vector<const Mesh *> meshes{&a.mesh, &b.mesh};
  std::map<std::string, ModuleChange> modules; // by pattern
  for (const std::string &tensor : model.tensors) {
    const Rule from = ruleOf(a, tensor, meshes), to = ruleOf(b, tensor, meshes);
    if (from.dims == to.dims || (from.origin == "default" && to.origin == "default"))
      continue;
    ModuleChange &change = modules[layerPattern(moduleOf(tensor))];
    const std::string leaf = tensor.substr(std::min(tensor.size(), moduleOf(tensor).size() + 1));
    change.tensors.push_back(tensor);
    change.from.insert(fmt::format("{} {}", leaf, dimsText(from.dims)));
    change.to.insert(fmt::format("{} {}", leaf, dimsText(to.dims)));
  }
  const std::map<std::string, OpTexts> before = opsOf(a), after = opsOf(b);
  std::set<std::string> patterns;
  for (const auto *ops : {&before, &after})
    for (const auto &[pattern, labels] : *ops)
      patterns.insert(pattern);
  for (const std::string &pattern : patterns) {
    const OpTexts from = before.contains(pattern) ? before.at(pattern) : OpTexts(),
                  to = after.contains(pattern) ? after.at(pattern) : OpTexts();
    if (from == to)
      continue;
    ModuleChange &change = modules[pattern];
    change.ops = true;
    for (const auto &[labels, texts] : {std::pair(&from, &change.from), {&to, &change.to}})
      for (const auto &[label, decision] : *labels)
        texts->insert(fmt::format("{} {}", label, decision));
  }
  for (const auto &[pattern, change] : modules) {
    const auto list = [](const std::set<std::string> &texts) {
      return texts.empty() ? "as by default" : fmt::format("{}", fmt::join(texts, "; "));
    };
    Difference &made =
        found.emplace_back(Difference{"sharding", pattern, list(change.from), list(change.to), std::nullopt});
    if (!sameMesh) {
      made.problem = fmt::format("it is made for the mesh {}", meshText(b.mesh));
      continue;
    }
    made.alone = a;
    for (const std::string &tensor : change.tensors)
      setRule(made.alone->shard, ShardRule{tensor, ruleOf(b, tensor, meshes).dims});
    if (!change.ops)
      continue;
    std::erase_if(made.alone->ops, [&](const OpRules &rules) { return rules.pattern == pattern; });
    for (const OpRules &rules : b.ops)
      if (rules.pattern == pattern)
        made.alone->ops.push_back(rules);
  }
}

} // namespace

// ---- lists ---------------------------------------------------------------------------------------------------------

std::vector<Decision> decisionsOf(const Decisions &strategy) {
  std::vector<Decision> all;
  for (const DecisionRow &row : decisionTable()) {
    const std::string word(row.word);
    const bool searched = word == "schedule" && strategy.scheduleOrigin == "search";
    all.push_back({word, "", row.value(strategy), searched ? "search" : strategy.originOf(word)});
  }
  for (const RecomputeRule &rule : strategy.recompute)
    if (rule.pattern != RecomputeRule::everyLayer)
      all.push_back({"recompute", rule.pattern, text(rule.kind), rule.origin});
  for (const ShardRule &rule : strategy.shard)
    if (rule.origin != "default")
      all.push_back({"sharding", rule.pattern, dimsText(rule.dims), rule.origin});
  for (const OpRules &rules : strategy.ops)
    for (const auto &[label, decision] : rules.ops)
      all.push_back({"sharding", rules.pattern, fmt::format("{} {}", label, decision), rules.origin});
  for (const Mark &mark : strategy.marks)
    all.push_back({"mark", mark.path,
                   fmt::format("withSharding {{\"{}\"}}{}", fmt::join(mark.axes, "\", \""),
                               mark.where.empty() ? "" : " at " + mark.where),
                   "code"});
  return all;
}

std::vector<Difference> differences(const Decisions &a, const Decisions &b, const ModelNames &model) {
  std::vector<Difference> found;
  const auto differs = [&](const std::string &word) { // `alone` has the decision of `b`
    const DecisionRow &row = *decisionNamed(word);
    const std::string from = row.value(a), to = row.value(b);
    if (from == to && (word != "stages" || a.stages == b.stages) && (word != "schedule" || a.order == b.order))
      return false;
    found.push_back({word, "", from, to, a});
    row.copy(*found.back().alone, b);
    return true;
  };
  const auto last = [&]() -> Difference & { return found.back(); };
  if (differs("mesh"))
    adaptToMesh(last(), b);
  if (differs("schedule")) {
    Decisions &s = *last().alone;
    if (s.mesh.size(AxisRole::Pipeline) != b.mesh.size(AxisRole::Pipeline) || s.microbatches != b.microbatches)
      s.order.clear();
    adaptStages(last(), b);
  }
  if (differs("microbatches"))
    last().alone->order.clear();
  if (differs("stages") && a.stageCount() != b.stageCount()) {
    last().alone.reset();
    last().problem = fmt::format("its number is another, {}: {}", b.stageCount(), b.stagesText());
  }
  compareRecomputation(a, b, model, found);
  for (const DecisionRow &row : decisionTable())
    if (row.tried && row.word != "recompute")
      differs(std::string(row.word));
  const bool asked = a.originOf("scatter_gather") != "default" || b.originOf("scatter_gather") != "default";
  if ((asked || a.mesh == b.mesh) && differs("scatter_gather"))
    last().alone->scatterGather = b.scatterGather.value_or(0);
  compareShardings(a, b, model, found);
  for (Difference &one : found) // that follows from the mesh, unless it was asked for
    if (one.alone && a.originOf("scatter_gather") == "default" && one.decision != "scatter_gather")
      one.alone->scatterGather.reset();
  return found;
}

} // namespace cleave::partitioner
