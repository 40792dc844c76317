// A sharding-choice problem: every node takes one of its choices, so that the sum of all costs is least and the memory
// in use never exceeds a limit. This is the problem of the ASPLOS 2025 contest on intra-operator parallelism for
// distributed deep learning, and what the search of this folder's users asks for each block of a network.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Sums of costs. A problem has fewer than 2^32 costs below 2^63 each, so sums never overflow.
__extension__ typedef __int128 WideCost;

/// While `begin <= t < end`, the node uses `usages[choice]` of the memory at time t. Usages are at least 0. Without a
/// limit `usages` may be empty.
struct AssignmentNode {
  std::vector<int64_t> costs;  // one for each choice
  std::vector<int64_t> usages; // one for each choice
  int64_t begin = 0, end = 0;
};

/// A cost for every combination of choices of some different nodes; the last node's choice changes fastest.
struct AssignmentEdge {
  std::vector<uint32_t> nodes;
  std::vector<int64_t> costs;
};

struct AssignmentProblem {
  std::string name;
  std::vector<AssignmentNode> nodes;
  std::vector<AssignmentEdge> edges;
  std::optional<int64_t> usageLimit; // none: memory does not matter
};

struct AssignmentSolution {
  std::vector<uint32_t> assignment; // the choice of each node; empty if no assignment within the limit was found
  WideCost cost = 0;                // of `assignment`
  WideCost lowerBound = 0;          // no assignment within the limit costs less
  bool infeasible = false;          // it is proved that no assignment stays within the limit
  bool optimal() const { return !assignment.empty() && cost == lowerBound; }
};

/// The cost of an assignment.
WideCost costOf(const AssignmentProblem &problem, const std::vector<uint32_t> &assignment);
/// Whether the memory in use never exceeds the limit.
bool fits(const AssignmentProblem &problem, const std::vector<uint32_t> &assignment);

/// Throws a userError "NAME: problem.edges.nodes[17][1]: ..." for the first part of the problem that is no valid one:
/// lists of different lengths, a node without choices, an edge of no nodes, of a repeated node, or of a node that does
/// not exist, an interval that ends before it begins, a negative usage, a limit that times the number of nodes is 2^62
/// or more.
void checkProblem(const AssignmentProblem &problem, const std::string &name);

/// Decimal digits.
std::string text(WideCost cost);

} // namespace cleave::partitioner
