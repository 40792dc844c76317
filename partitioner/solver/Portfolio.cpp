// Bound and search side by side.
#include "partitioner/solver/Portfolio.h"
#include "partitioner/solver/Greedy.h"
#include "partitioner/solver/Reduce.h"

#include <cmath>
#include <future>

namespace cleave::partitioner {
namespace {

constexpr uint64_t aloneWork = 50'000'000, roundWork = 25'000'000, nearWork = 100'000'000;

Choices modelChoices(const Model &model, const std::vector<uint32_t> &choices) {
  Choices x(model.nodes());
  for (uint32_t v = 0; v < model.nodes(); ++v)
    x[v] = choices[model.coreNode[v]];
  return x;
}

} // namespace

BoundSearch::BoundSearch(const Core &original)
    : original(original), originalModel(modelOf(original)), target(original.target), best(original.base),
      root(rootOf(original)) {}

void BoundSearch::lower(WideCost most) {
  target = std::min(target, most);
  if (tree)
    tree->lower(target);
}

bool BoundSearch::run(WorkLimit &limit) {
  while (!none && best <= target && !limit.spent(0)) {
    if (fruitless)
      branch(limit);
    else
      raise(limit);
  }
  if (none)
    best = target + 1;
  return best > target;
}

/// Steps of the bound until the work is done or they no longer help; then prices and messages are put into the core.
void BoundSearch::raise(WorkLimit &limit) {
  setTarget(root, target + 1);
  if (!root.infeasible)
    reduce(root);
  if (root.infeasible) {
    none = true;
    return;
  }
  fresh.clear();
  model = std::make_unique<Model>(modelOf(root));
  ascent = std::make_unique<Ascent>(*model);
  const bool known = target < original.target;
  const double gap = double(root.target - root.base) + 1;
  // Without a known assignment the bound is expected to rise by a quarter of what it rose since the beginning.
  const double unit = std::ldexp(1.0, -root.shift), risen = double(root.base) - double(original.base) * unit;
  double before = ascent->value();
  for (unsigned k = 1; k <= 100 && !fruitless && ascent->value() < gap; ++k) {
    const double goal = known ? gap : ascent->value() + 0.25 * std::max(0.0, risen + ascent->value()) + unit;
    ascent->step(goal);
    if (++steps % (known ? 20 : 5) == 0)
      offer();
    if (limit.spent(2 * sweepWork(*model) + 1))
      break;
    // Twenty steps that close less than five thousandths of the gap are followed by branching.
    if (k % 20 == 0) {
      fruitless = ascent->value() - before < 0.005 * (goal - ascent->value());
      before = ascent->value();
    }
  }
  fruitless |= ascent->value() >= gap; // the bound is reached, unless that was a matter of rounding
  ascent->rewind();
  ascent->dual.applyTo(root);
  best = std::max(best, boundOf(root));
  none |= root.infeasible;
}

/// Branches for a target near the bound.
void BoundSearch::branch(WorkLimit &limit) {
  constexpr unsigned levels = 4;
  if (!tree) {
    const bool known = target < original.target;
    const WideCost gap =
        known ? target - best : std::min(target - best, best - original.base + (original.base >> 4) + 16);
    near =
        level >= levels ? target : std::min(target, best + (gap >> 2 * (levels - 1 - std::min(level, levels - 1))) / 2);
    Core core = root;
    setTarget(core, near + 1);
    tree = std::make_unique<BranchSearch>(original, std::move(core));
    tree->lower(near);
    treeWork = 0;
  }
  WorkLimit own{level < levels ? nearWork - std::min(nearWork, treeWork) : UINT64_MAX, 0, limit.stop};
  own.most = std::min(own.most, limit.most - std::min(limit.most, limit.done));
  const bool complete = tree->run(own);
  limit.spent(own.done);
  treeWork += own.done;
  best = std::max(best, std::min(tree->bound(), near + 1));
  if (!tree->choices().empty() && tree->cost() <= target) {
    found = tree->choices();
    target = tree->cost() - 1;
  }
  if (complete) {
    best = std::max(best, std::min(near, target) + 1);
  }
  if (complete || (level < levels && treeWork >= nearWork)) {
    ++level;
    tree.reset();
  }
}

std::vector<double> BoundSearch::scores(const std::vector<uint32_t> &choices) const {
  // The places of the choices in the root, where choices were dropped.
  std::vector<uint32_t> place = choices;
  for (const Undo &undo : root.undo)
    if (undo.first == undo.node && place[undo.node] != Undo::nobody) {
      const auto at = std::find(undo.map.begin(), undo.map.end(), place[undo.node]);
      place[undo.node] = at == undo.map.end() ? Undo::nobody : uint32_t(at - undo.map.begin());
    }
  const double unit = std::ldexp(1.0, root.shift), gap = std::max(1.0, double(root.target - root.base) * unit);
  std::vector<double> out(root.nodes.size(), 0);
  const auto add = [&](uint32_t v, int64_t cost, double share) {
    out[v] += share * std::min(gap, double(cost) * unit);
  };
  for (uint32_t v = 0; v < root.nodes.size(); ++v)
    if (!root.nodes[v].costs.empty()) {
      if (place[v] == Undo::nobody)
        out[v] += 0.01 * gap;
      else
        add(v, root.nodes[v].costs[place[v]], 1);
    }
  for (const CoreEdge &edge : root.edges)
    if (!edge.costs.empty() && place[edge.nodes[0]] != Undo::nobody && place[edge.nodes[1]] != Undo::nobody)
      for (uint32_t v : edge.nodes)
        add(v, root.pair(edge, place[edge.nodes[0]], place[edge.nodes[1]]), 0.5);
  return out;
}

/// Greedy choices; those within the target are kept as found.
void BoundSearch::offer() {
  const Choices x = greedyChoices(*model, ascent->dual);
  if (x.empty())
    return;
  std::vector<uint32_t> choices = restored(root, coreChoices(root, *model, x));
  const Choices all = modelChoices(originalModel, choices);
  const int64_t cost = costOf(originalModel, all);
  if (cost >= forbidden || !fits(originalModel, all))
    return;
  if (fresh.empty() || cost < freshCost) {
    fresh = choices;
    freshCost = cost;
  }
  if (original.base + cost > target)
    return;
  target = original.base + cost - 1;
  found = std::move(choices);
}
Portfolio::Portfolio(Core core, unsigned threads) : reduced(std::move(core)), threads(threads) {
  reduce(reduced);
  model = modelOf(reduced);
  least = reduced.base;
}

/// Keeps choices that cost less than the best.
void Portfolio::take(std::vector<uint32_t> choices) {
  const WideCost here = model.base + costOf(model, modelChoices(model, choices));
  if (found.empty() || here < cost) {
    found = std::move(choices);
    cost = here;
  }
}

/// Says from where the search of neighbourhoods continues, and where it may gain. One that gains little more starts
/// anew from the bound's latest choices, which become better with the bound; then it returns to the best.
void Portfolio::direct(BoundSearch &bound) {
  if (found.empty())
    if (std::vector<uint32_t> choices = bound.takeFresh(); !choices.empty())
      take(std::move(choices));
  if (found.empty())
    return;
  if (!neighbourhoods)
    neighbourhoods.emplace(model, modelChoices(model, found), 1);
  else if (neighbourhoods->tries >= seenTries + patience) {
    std::vector<uint32_t> next =
        model.base + neighbourhoods->cost() > cost ? std::vector<uint32_t>{} : bound.takeFresh();
    neighbourhoods->restart(modelChoices(model, next.empty() ? found : next));
    seen = INT64_MAX;
    patience = std::min<uint64_t>(patience + 50, 1000);
  }
  if (double(neighbourhoods->cost() + model.base) < 0.9995 * (double(seen) + double(model.base)) || seen == 0) {
    seen = neighbourhoods->cost();
    seenTries = neighbourhoods->tries;
  }
  const std::vector<double> scores = bound.scores(coreChoices(reduced, model, neighbourhoods->best()));
  std::vector<double> ofModel;
  for (uint32_t v : model.coreNode)
    ofModel.push_back(scores[v]);
  neighbourhoods->setScores(std::move(ofModel));
}

bool Portfolio::bounds(WorkLimit &limit) {
  if (reduced.infeasible)
    return true;
  BoundSearch bound(reduced);
  const bool complete = bound.run(limit);
  if (std::vector<uint32_t> choices = bound.take(); !choices.empty())
    take(std::move(choices));
  return complete;
}

bool Portfolio::run(WorkLimit &limit, double tolerance) {
  if (reduced.infeasible) {
    least = reduced.target + 1;
    return true;
  }
  BoundSearch bound(reduced);
  WorkLimit alone{std::min(aloneWork, limit.most - std::min(limit.most, limit.done)), 0, limit.stop};
  bool complete = bound.run(alone);
  limit.spent(alone.done);
  for (;;) {
    if (std::vector<uint32_t> choices = bound.take(); !choices.empty())
      take(std::move(choices));
    if (neighbourhoods)
      take(coreChoices(reduced, model, neighbourhoods->best()));
    if (!found.empty())
      bound.lower(cost - 1);
    least = std::max(least, bound.bound());
    if (complete || (!found.empty() && double(cost - least) <= tolerance * double(cost)))
      return true;
    if (limit.spent(0))
      return false;
    direct(bound);
    WorkLimit boundLimit{roundWork, 0, limit.stop}, searchLimit{roundWork, 0, limit.stop};
    if (threads > 1 && neighbourhoods) {
      auto other = std::async(std::launch::async, [&] { return bound.run(boundLimit); });
      neighbourhoods->run(searchLimit);
      complete = other.get();
    } else {
      complete = bound.run(boundLimit);
      if (neighbourhoods)
        neighbourhoods->run(searchLimit);
    }
    limit.spent(boundLimit.done + searchLimit.done);
  }
}

} // namespace cleave::partitioner
