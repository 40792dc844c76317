// Branch and bound.
#include "partitioner/solver/Branch.h"
#include "partitioner/solver/Dual.h"
#include "partitioner/solver/Greedy.h"
#include "partitioner/solver/Reduce.h"

#include <numeric>

namespace cleave::partitioner {
namespace {

size_t choicesLeft(const Core &core) {
  size_t sum = 0;
  for (const CoreNode &node : core.nodes)
    sum += node.costs.size();
  return sum;
}

} // namespace

uint64_t sweepWork(const Model &model) {
  return model.tables.size() + model.uses.size() + model.room.size() + model.costs.size();
}

Core rootOf(const Core &original) {
  Core root = original;
  root.shift = 0;
  root.undo.clear();
  root.given = uint32_t(root.nodes.size());
  return root;
}

BranchSearch::BranchSearch(const Core &original) : BranchSearch(original, rootOf(original)) {}

BranchSearch::BranchSearch(const Core &original, Core root) : original(modelOf(original)), target(original.target) {
  open.push_back(std::move(root));
}

bool BranchSearch::run(WorkLimit &limit) {
  while (!open.empty() && !limit.spent(0)) {
    Core core = std::move(open.back());
    open.pop_back();
    ++visited;
    visit(std::move(core), limit);
  }
  return open.empty();
}

WideCost BranchSearch::bound() const {
  WideCost least = target + 1;
  for (const Core &core : open)
    least = std::min(least, boundOf(core));
  return least;
}

void BranchSearch::visit(Core core, WorkLimit &limit) {
  setTarget(core, target + 1);
  if (core.infeasible)
    return;
  limit.spent(choicesLeft(core) + core.room.size());
  reduce(core, {.dominated = visited == 1});
  for (int round = 0; round < 4 && !core.infeasible; ++round) {
    const Model model = modelOf(core);
    if (model.nodes() == 0)
      break;
    if (!improve(core, model, limit))
      return;
    setTarget(core, target + 1);
    if (core.infeasible)
      return;
    reduce(core, {.dominated = false});
    if (10 * choicesLeft(core) > 8 * model.costs.size())
      break;
  }
  if (core.infeasible)
    return;
  const Model model = modelOf(core);
  if (model.nodes() == 0)
    offer(core, {});
  else
    split(std::move(core), model);
}

/// Improves the bound of a core. Returns whether it is still within the target.
bool BranchSearch::improve(Core &core, const Model &model, WorkLimit &limit) {
  Ascent ascent(model);
  const double gap = double(core.target - core.base) + 1;
  double checked = ascent.value();
  const unsigned most = visited == 1 ? 400 : 60, block = visited == 1 ? 40 : 10;
  for (unsigned k = 1; k <= most; ++k) {
    ascent.step(gap);
    if (limit.spent(2 * sweepWork(model)) || ascent.value() >= gap)
      break;
    if (k % block == 0) {
      if (ascent.value() - checked < 0.03 * (gap - ascent.value()))
        break;
      checked = ascent.value();
    }
  }
  ascent.rewind();
  if (visited % 8 == 1)
    if (const Choices x = greedyChoices(model, ascent.dual); !x.empty())
      offer(core, coreChoices(core, model, x));
  ascent.dual.applyTo(core);
  return !core.infeasible;
}

/// Takes the choices of a core's nodes if they are better than the best known.
void BranchSearch::offer(const Core &core, std::vector<uint32_t> choices) {
  choices.resize(core.nodes.size(), 0);
  choices = restored(core, std::move(choices));
  Choices x(original.nodes());
  for (uint32_t v = 0; v < original.nodes(); ++v)
    x[v] = choices[original.coreNode[v]];
  const int64_t cost = costOf(original, x);
  if (cost >= forbidden || original.base + cost > target || !fits(original, x))
    return;
  foundCost = original.base + cost;
  found = std::move(choices);
  target = foundCost - 1;
}

/// Branches on the node whose best choice is clearest; among equals on the one with most edges and memory.
void BranchSearch::split(Core core, const Model &model) {
  uint32_t best = 0;
  std::pair<int64_t, double> score{-1, -1};
  for (uint32_t v = 0; v < model.nodes(); ++v) {
    int64_t first = forbidden, second = forbidden;
    for (uint32_t i = 0; i < model.choices[v]; ++i) {
      const int64_t cost = model.costs[model.first[v] + i];
      second = std::min(second, std::max(first, cost));
      first = std::min(first, cost);
    }
    const std::pair<int64_t, double> here{second - first, double(model.links[v].size() + model.pieces[v].size()) /
                                                              double(model.choices[v])};
    if (here > score) {
      score = here;
      best = v;
    }
  }
  const uint32_t v = model.coreNode[best];
  const std::vector<int64_t> &costs = core.nodes[v].costs;
  const auto first = size_t(std::min_element(costs.begin(), costs.end()) - costs.begin());
  Core rest = core; // pushed first, so that the best choice is visited before
  rest.nodes[v].costs[first] = forbidden;
  open.push_back(std::move(rest));
  for (size_t i = 0; i < costs.size(); ++i)
    if (i != first)
      core.nodes[v].costs[i] = forbidden;
  open.push_back(std::move(core));
}

} // namespace cleave::partitioner
