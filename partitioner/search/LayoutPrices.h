// What ops and reshards cost under shardings, by the indices of the shardings.
#pragma once
#include "partitioner/search/LayoutCosts.h"
#include "partitioner/sharding/Solution.h"

#include <map>
#include <tuple>
#include <vector>

namespace cleave::partitioner {

/// Keeps references to the problem and the costs. All costs are picoseconds on the rank with the largest shares.
class LayoutPrices {
public:
  LayoutPrices(const ShardingProblem &problem, LayoutCosts &costs);

  ShardingId intern(Sharding sharding);
  const Sharding &operator[](ShardingId id) const { return table[id]; }

  /// Of the messages from one sharding to another.
  int64_t reshard(ShardingId from, ShardingId to, int64_t bits);
  /// Of one op. Views cost nothing.
  int64_t op(const ProblemOp &op, const std::vector<ShardingId> &operands,
             const std::vector<ShardingId> &results) const;
  /// Of a rank's part of a parameter in the optimizer: the parameter and two states, read and written, and the
  /// gradient.
  int64_t update(ShardingId stored, int64_t bits) const;

private:
  std::vector<int64_t> origin() const { return std::vector<int64_t>(problem.mesh.axes.size()); }
  bool isMoved(TensorId tensor) const;
  double bytesOf(TensorId tensor, ShardingId sharding) const;
  void describeProduct(const ProblemOp &op, const std::vector<ShardingId> &operands,
                       const std::vector<ShardingId> &results, StepWork &work) const;
  double shareOfLoop(const OpRule &rule, int loop, const ProblemOp &op, const std::vector<ShardingId> &operands,
                     const std::vector<ShardingId> &results) const;

  const ShardingProblem &problem;
  LayoutCosts &costs;
  ShardingTable table;
  std::vector<int64_t> elements; ///< of the first rank's share, by sharding
  std::map<std::tuple<ShardingId, ShardingId, int64_t>, int64_t> reshards;
  std::vector<bool> moved; ///< by tensor: whether it is written to memory
};

} // namespace cleave::partitioner
