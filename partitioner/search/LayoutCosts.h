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

/// Devices on which the ranks of a mesh may lie; empty: the first of the cluster.
struct LayoutDevices {
  Cluster cluster;
  std::vector<uint32_t> devices = {};
};

class LayoutCosts {
public:
  /// Messages have their least cost at any of the `places`, which have devices of one kind. `half`, `single`: the rates
  /// of products of 16 and of 32 bits. Throws userError if a cluster has fewer devices.
  LayoutCosts(std::vector<LayoutDevices> places, const Mesh &mesh, Rate half, Rate single);

  int64_t message(const Message &message);
  int64_t work(StepWork work, int64_t elementBits) const;

  static constexpr double picosecond = 1e-12;

private:
  const std::vector<GroupLinks> &links(const std::vector<std::string> &axes);

  const std::vector<LayoutDevices> places;
  const Mesh mesh;
  const CostDevice device;
  std::vector<Topology> topologies; ///< by place
  Rate half, single;
  std::map<std::vector<std::string>, std::vector<GroupLinks>> groups; ///< by axes, and by place
};

} // namespace cleave::partitioner
