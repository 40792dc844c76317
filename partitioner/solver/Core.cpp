// Builds a core, and restores assignments from it.
#include "partitioner/solver/Core.h"

#include <algorithm>
#include <numeric>

namespace cleave::partitioner {
namespace {

/// Subtracts the least cost from all, adds it to the base, and forbids what is more than `limit` above it.
std::vector<int64_t> shiftedCosts(const std::vector<int64_t> &costs, WideCost limit, Core &core) {
  std::vector<int64_t> out;
  out.reserve(costs.size());
  const int64_t least = *std::min_element(costs.begin(), costs.end()) >> core.shift;
  for (int64_t cost : costs) {
    const WideCost above = WideCost(cost >> core.shift) - least;
    out.push_back(above > limit >> core.shift ? forbidden : int64_t(above));
  }
  core.base += least;
  return out;
}

/// An edge of three or more nodes: a node whose choices are the combinations, tied to each of the nodes by an edge
/// that forbids all but the combination's own choice.
void addHyperedge(Core &core, const AssignmentEdge &edge, std::vector<int64_t> costs) {
  const auto tie = uint32_t(core.nodes.size());
  core.nodes.push_back({std::move(costs), {}, {}});
  const size_t combinations = core.nodes[tie].costs.size();
  size_t stride = combinations;
  for (uint32_t v : edge.nodes) {
    const size_t choices = core.choices(v);
    stride /= choices;
    CoreEdge pair{{tie, v}, std::vector<int64_t>(combinations * choices, forbidden)};
    for (size_t k = 0; k < combinations; ++k)
      pair.costs[k * choices + k / stride % choices] = 0;
    core.edges.push_back(std::move(pair));
  }
}

/// The rows of the memory: the times at which one more node's usage would not fit into a set of nodes that are already
/// there at another time. Nodes get their pieces.
void addRows(Core &core, const AssignmentProblem &problem) {
  std::vector<std::pair<int64_t, bool>> events; // (time, whether a node begins there)
  for (const AssignmentNode &node : problem.nodes)
    if (node.begin < node.end) {
      events.emplace_back(node.begin, true);
      events.emplace_back(node.end, false);
    }
  std::sort(events.begin(), events.end()); // at one time, ends come first
  // A row is a time after a beginning and before an end: between two ends less is used than before them, and between
  // two beginnings less than after them.
  std::vector<int64_t> rows; // the time of each row's last beginning
  for (size_t i = 0; i + 1 < events.size(); ++i)
    if (events[i].second && !events[i + 1].second)
      rows.push_back(events[i].first);
  for (uint32_t v = 0; v < core.given; ++v) {
    const AssignmentNode &node = problem.nodes[v];
    const auto begin = uint32_t(std::lower_bound(rows.begin(), rows.end(), node.begin) - rows.begin());
    const auto end = uint32_t(std::lower_bound(rows.begin(), rows.end(), node.end) - rows.begin());
    if (node.begin < node.end && begin < end) {
      core.nodes[v].pieces.push_back({begin, end, node.usages});
      for (int64_t &use : core.nodes[v].pieces.back().use)
        use = std::min(use, *problem.usageLimit + 1); // what is more does not fit either
    }
  }
  core.room.assign(rows.size(), *problem.usageLimit);
}

} // namespace

std::vector<uint32_t> endsOf(const std::vector<CorePiece> &pieces) {
  std::vector<uint32_t> ends;
  for (const CorePiece &piece : pieces) {
    ends.push_back(piece.begin);
    ends.push_back(piece.end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

Core coreOf(const AssignmentProblem &problem, WideCost limit, int shift) {
  Core core;
  core.shift = shift;
  core.given = uint32_t(problem.nodes.size());
  for (const AssignmentNode &node : problem.nodes)
    core.nodes.push_back({shiftedCosts(node.costs, limit, core), {}, {}});
  for (const AssignmentEdge &edge : problem.edges) {
    std::vector<int64_t> costs = shiftedCosts(edge.costs, limit, core);
    if (edge.nodes.size() == 1)
      std::transform(costs.begin(), costs.end(), core.nodes[edge.nodes[0]].costs.begin(),
                     core.nodes[edge.nodes[0]].costs.begin(), added);
    else if (edge.nodes.size() == 2)
      core.edges.push_back({{edge.nodes[0], edge.nodes[1]}, std::move(costs)});
    else
      addHyperedge(core, edge, std::move(costs));
  }
  for (uint32_t e = 0; e < core.edges.size(); ++e)
    for (uint32_t v : core.edges[e].nodes)
      core.nodes[v].edges.push_back(e);
  if (problem.usageLimit)
    addRows(core, problem);
  core.prices.assign(core.room.size(), 0);
  core.target = core.base + std::min<WideCost>(limit >> shift, widest);
  return core;
}

WideCost boundOf(const Core &core) {
  if (core.shift >= 0)
    return core.base << core.shift;
  const WideCost unit = WideCost(1) << -core.shift;
  return core.base >= 0 ? (core.base + unit - 1) / unit : -(-core.base / unit);
}

void setTarget(Core &core, WideCost cost) {
  core.target = std::min(core.target, core.shift >= 0 ? (cost - 1) >> core.shift : (cost - 1) << -core.shift);
  core.infeasible |= core.base > core.target;
}

std::vector<uint32_t> restored(const Core &core, std::vector<uint32_t> choices) {
  for (size_t i = core.undo.size(); i-- > 0;) {
    const Undo &undo = core.undo[i];
    const size_t first = undo.first == Undo::nobody ? 0 : choices[undo.first];
    const size_t second = undo.second == Undo::nobody ? 0 : choices[undo.second];
    choices[undo.node] = undo.map[first * undo.stride + second];
  }
  choices.resize(core.given);
  return choices;
}

} // namespace cleave::partitioner
