// Costs and memory of assignments, and the rules that a problem must obey.
#include "partitioner/solver/Problem.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::partitioner {

WideCost costOf(const AssignmentProblem &problem, const std::vector<uint32_t> &assignment) {
  WideCost sum = 0;
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    sum += problem.nodes[v].costs[assignment[v]];
  for (const AssignmentEdge &edge : problem.edges) {
    size_t at = 0;
    for (uint32_t v : edge.nodes)
      at = at * problem.nodes[v].costs.size() + assignment[v];
    sum += edge.costs[at];
  }
  return sum;
}

bool fits(const AssignmentProblem &problem, const std::vector<uint32_t> &assignment) {
  if (!problem.usageLimit)
    return true;
  std::vector<std::pair<int64_t, WideCost>> changes;
  for (size_t v = 0; v < problem.nodes.size(); ++v) {
    const AssignmentNode &node = problem.nodes[v];
    if (node.begin >= node.end)
      continue;
    changes.emplace_back(node.begin, node.usages[assignment[v]]);
    changes.emplace_back(node.end, -WideCost(node.usages[assignment[v]]));
  }
  std::sort(changes.begin(), changes.end()); // at one time, what ends comes before what begins
  WideCost used = 0;
  for (const auto &[time, change] : changes)
    if ((used += change) > *problem.usageLimit)
      return false;
  return true;
}

std::string text(WideCost cost) { return fmt::format("{}", cost); }

namespace {

[[noreturn]] void failProblem(const std::string &name, const std::string &what) { throw userError(name + ": " + what); }

void checkNode(const AssignmentNode &node, size_t v, bool limited, const std::string &name) {
  if (node.costs.empty())
    failProblem(name, fmt::format("problem.nodes.costs[{}]: a node needs at least one choice, found none", v));
  if (node.begin < 0 || node.begin > node.end)
    failProblem(name,
                fmt::format("problem.nodes.intervals[{}]: must be [begin, end) with 0 <= begin <= end, found [{}, {}]",
                            v, node.begin, node.end));
  if (limited && node.usages.size() != node.costs.size())
    failProblem(name, fmt::format("problem.nodes.usages[{}]: must have one value for each of the {} choices, found {}",
                                  v, node.costs.size(), node.usages.size()));
  for (size_t c = 0; c < node.usages.size(); ++c)
    if (node.usages[c] < 0)
      failProblem(name,
                  fmt::format("problem.nodes.usages[{}][{}]: must be at least 0, found {}", v, c, node.usages[c]));
}

void checkEdge(const AssignmentProblem &problem, size_t e, const std::string &name) {
  const std::vector<uint32_t> &ends = problem.edges[e].nodes;
  if (ends.empty())
    failProblem(name, fmt::format("problem.edges.nodes[{}]: an edge needs at least one node, found none", e));
  WideCost size = 1;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] >= problem.nodes.size())
      failProblem(name, fmt::format("problem.edges.nodes[{}][{}]: {} is not below the {} nodes", e, i, ends[i],
                                    problem.nodes.size()));
    if (const auto same = std::find(ends.begin(), ends.begin() + std::ptrdiff_t(i), ends[i]);
        *same == ends[i] && same != ends.begin() + std::ptrdiff_t(i))
      failProblem(name, fmt::format("problem.edges.nodes[{}][{}]: {} is repeated; the nodes of an edge must differ", e,
                                    i, ends[i]));
    size = std::min<WideCost>(size * problem.nodes[ends[i]].costs.size(), WideCost(1) << 40);
  }
  if (size != WideCost(problem.edges[e].costs.size()))
    failProblem(
        name,
        fmt::format("problem.edges.costs[{}]: must have one cost for each of the {} combinations of choices, found {}",
                    e, size, problem.edges[e].costs.size()));
}

} // namespace

void checkProblem(const AssignmentProblem &problem, const std::string &name) {
  if (problem.usageLimit && *problem.usageLimit < 0)
    failProblem(name, fmt::format("problem.usage_limit: must be at least 0, found {}", *problem.usageLimit));
  if (problem.usageLimit && (WideCost(*problem.usageLimit) + 1) * problem.nodes.size() >= WideCost(1) << 62)
    failProblem(name, fmt::format("problem.usage_limit: {} times the {} nodes must be below 2^62", *problem.usageLimit,
                                  problem.nodes.size()));
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    checkNode(problem.nodes[v], v, problem.usageLimit.has_value(), name);
  for (size_t e = 0; e < problem.edges.size(); ++e)
    checkEdge(problem, e, name);
}

} // namespace cleave::partitioner
