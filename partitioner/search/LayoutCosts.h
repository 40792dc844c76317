// What layouts cost: seconds of messages and of ops on one rank, in whole picoseconds, so that sums of them are exact.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/StepCost.h"
#include "partitioner/sharding/Messages.h"
#include "partitioner/simulate/Topology.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::partitioner {

class LayoutCosts {
public:
  /// `half`, `single`: the rates of products of 16 and of 32 bits. Ranks of `mesh` lie on the first devices of the
  /// cluster. Throws userError if it has fewer.
  LayoutCosts(const Cluster &cluster, const Mesh &mesh, Rate half, Rate single);

  int64_t message(const Message &message);
  int64_t work(StepWork work, int64_t elementBits) const;

  static constexpr double picosecond = 1e-12;

private:
  const GroupLinks &links(const std::vector<std::string> &axes);

  const Mesh mesh;
  const CostDevice device;
  Topology topology;
  Rate half, single;
  std::map<std::vector<std::string>, GroupLinks> groups;
};

} // namespace cleave::partitioner
