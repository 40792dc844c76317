#include "partitioner/search/FoundDecisions.h"

#include "partitioner/cost/ScatterGather.h"
#include "partitioner/strategy/DecisionTable.h"

#include <algorithm>
#include <map>

namespace cleave::partitioner {

std::vector<RecomputeRule> rulesOf(const std::vector<SearchLayer> &layers,
                                   const std::vector<Recomputation> &recompute) {
  std::map<Recomputation, int64_t> counts;
  for (const Recomputation kind : recompute)
    ++counts[kind];
  const Recomputation most =
      std::ranges::max_element(counts, {}, [](const auto &entry) { return entry.second; })->first;
  std::vector<RecomputeRule> rules{{RecomputeRule::everyLayer, most, "search"}};
  for (size_t i = 0; i < recompute.size(); ++i)
    if (recompute[i] != most && layers[i].ownRule)
      rules.push_back({layers[i].path, recompute[i], "search"});
  return rules;
}

/// The layers of each stage as a strategy lists them, from the first layer of each.
static std::vector<std::vector<std::string>> stageLists(const std::vector<SearchLayer> &layers,
                                                        const std::vector<size_t> &begins) {
  std::vector<std::vector<std::string>> stages(begins.size());
  std::map<std::string, int64_t> uses;
  size_t stage = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool first = stage + 1 < stages.size() && i == begins[stage + 1];
    stage += first;
    const std::string &path = layers[i].path;
    if (const int64_t use = path.empty() ? 0 : ++uses[path]; use == 1 || (use > 1 && first))
      stages[stage].push_back(LayerUse{path, use}.str());
  }
  return stages;
}

void setRecompute(Decisions &decisions, const Strategy &pins, std::vector<RecomputeRule> rules) {
  decisions.recompute = pins.recompute;
  if (!ofEveryLayer(pins.recompute))
    decisions.recompute.insert(decisions.recompute.begin(), rules.begin(), rules.end());
}

Decisions decisionsOf(const SpaceRequest &asked, const SplitChoice &split, int64_t pipeline, int64_t microbatches) {
  Decisions decisions = asked.pins.decided();
  const PlanGroup group(meshByRole(split.data, split.tensor, pipeline), split, microbatches);
  const Decisions chosen = decisionsOf(group, {Decisions().schedule});
  for (const DecisionRow &row : decisionTable())
    if (row.word != "scatter_gather")
      row.copy(decisions, chosen);
  setRecompute(decisions, asked.pins, chosen.recompute);
  return decisions;
}

/// Records what the request leaves open.
static void markFound(Decisions &decisions, const SearchInput &input) {
  for (const DecisionRow &row : decisionTable()) {
    const bool open = row.word == "stages" ? input.begins.empty() && !decisions.stages.empty()
                                           : row.open && row.open(input.space.asked.pins);
    if (open && row.word != "recompute") // whose rules have origins of their own
      decisions.origins[std::string(row.word)] = "search";
  }
}

Decisions decisionsOf(const SearchInput &input, const Candidate &candidate, const Cluster &cluster,
                      const SolvedLayouts *solved) {
  const SpaceRequest &asked = input.space.asked;
  const Decisions pinned = asked.pins.decided();
  Decisions decisions =
      decisionsOf(asked, candidate.group.split, candidate.group.pipeline, candidate.group.microbatches);
  decisions.mesh = candidate.group.mesh();
  if (!decisions.scatterGather)
    decisions.scatterGather = scatterGatherBytes(cluster, decisions.mesh);
  setRecompute(decisions, asked.pins, rulesOf(input.layers, candidate.recompute));
  decisions.schedule = candidate.schedule.name;
  decisions.scheduleOrigin = asked.pins.schedule ? pinned.scheduleOrigin : "search";
  if (candidate.group.split.solved)
    decisions.shard = solved->shard, decisions.ops = solved->ops;
  decisions.chunks = candidate.schedule.chunks;
  decisions.placement = pinned.placement, decisions.order = pinned.order;
  decisions.stages = pinned.stages;
  if (input.begins.empty() && decisions.stageCount() > 1)
    decisions.stages = stageLists(input.layers, candidate.begins);
  markFound(decisions, input);
  return decisions;
}

} // namespace cleave::partitioner
