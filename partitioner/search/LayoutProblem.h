// The choice of shardings as a problem for the solver (partitioner/solver).
//
// Every op is a node, and so is every parameter; their choices are the ways in which the op runs (choicesOf), with the
// shardings under which it delivers its results, and the shardings in which the parameter is stored. Nodes cost the
// time of the op on a rank, and of the sums that it delivers reduced; pairs of nodes cost the reshards between them. A
// reshard that several ops share is a node of its own, made or not made, and is counted once. Equal layers share their
// nodes.
#pragma once
#include "partitioner/search/LayoutCosts.h"
#include "partitioner/sharding/Decided.h"
#include "partitioner/sharding/Solution.h"
#include "partitioner/solver/Problem.h"

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace cleave::partitioner {

/// The layer of an op or a parameter.
struct LayerPlace {
  int kind = -1;         ///< of layers that are solved once; -1: of none
  int instance = 0;      ///< 0 or 1: the problem has two layers of each kind
  std::string name = {}; ///< of the op or the parameter in its layer
};

/// A tensor in a pass: the stage and direction of the ops that read it.
struct TensorInPass {
  TensorId tensor = -1;
  int pass = 0;
  auto operator<=>(const TensorInPass &) const = default;
};

struct LayoutInput {
  const ShardingProblem &problem;
  LayoutCosts &costs;
  int64_t microbatches = 1;           ///< of an iteration
  double exposed = 1;                 ///< the part of the sums at the end of an iteration that nothing hides
  std::vector<LayerPlace> ops, names; ///< by op and by name of the problem
  std::vector<int64_t> times;         ///< by kind: the layers of the whole model
  /// Where several reshards may each be shared by several ops. Elsewhere the problem knows one such reshard of a tensor
  /// in a pass, that under which it is delivered or read, and counts others once for each op.
  std::set<TensorInPass> shared = {};
};

/// A solution in the words of the sharding problem.
struct DecidedLayouts {
  DecidedOps ops;
  std::vector<std::optional<Sharding>> names; ///< of parameters and buffers
};

/// What shardings cost the whole model, in picoseconds of a microbatch.
struct LayoutCost {
  int64_t steps = 0;    ///< ops, and reshards between them
  int64_t sums = 0;     ///< of gradients and metrics at the end of an iteration, as far as they are exposed
  int64_t backward = 0; ///< the ops of the backward pass: a part of `steps`
  int64_t all() const { return steps + sums; }
};

class LayoutBuilder;

class LayoutProblem {
public:
  /// Keeps a reference to the input.
  explicit LayoutProblem(const LayoutInput &input);
  ~LayoutProblem();

  const AssignmentProblem &assignmentProblem() const { return made; }
  /// Makes it the problem in which nothing hides the part `input.exposed` of the sums, which was changed.
  void exposeSums();
  DecidedLayouts decided(const std::vector<uint32_t> &assignment) const;
  /// The cost of any solution of the sharding problem, whoever made it; that of `decided` is the solver's.
  LayoutCost costOf(const ShardingSolution &solution) const;
  /// Where a solution shares reshards that the problem counts once for each op.
  std::set<TensorInPass> sharedIn(const ShardingSolution &solution, const DecidedLayouts &layouts) const;

private:
  friend class LayoutBuilder;
  std::unique_ptr<LayoutBuilder> builder;
  AssignmentProblem made;
  std::vector<int> opNodes, nameNodes;       // by op and name: its node, or -1
  std::vector<std::vector<Sharding>> stored; // by node: choices of a parameter, or of what is made between ops
  struct Between { // nodes of a result: under which sharding it is delivered, and read by the backward pass
    int delivered = -1, read = -1;
  };
  std::vector<Between> between; // of all results, in program order
  std::vector<size_t> results;  // their number by op
};

} // namespace cleave::partitioner
