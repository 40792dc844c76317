// The tuning model by which NCCL chooses the algorithm and protocol of a collective, for its rings and trees.
//
// Source of the model and of all its numbers: NVIDIA/nccl, src/graph/tuning.cc (version 2.30.7, 2026, Apache
// License 2.0). NCCL estimates the time of every algorithm (ring, tree) with every protocol (LL, LL128, Simple) as
//
//   latency + bytes / bandwidth
//
// and takes the fastest. The latency is a constant for the launch plus one for each hop; the bandwidth is that of the
// channels, less what the protocol adds to the data, and at most a limit of the architecture. Not modelled: NVLS and
// CollNet (reductions in switches), PAT, and what users set in the environment.
#pragma once
#include "partitioner/cost/Collectives.h"

#include <array>

namespace cleave::partitioner {

/// The model's constants that depend on the architecture. Rates in bytes per second; arrays: on 1, 2, more nodes.
struct NcclTuning {
  int computeCapability;               ///< 70: V100
  double channelRate;                  ///< of a ring or tree; the rate of a group is cut into channels of this rate
  std::array<double, 3> llRate;        ///< most of a group with protocol LL; between nodes by the processor
  std::array<double, 3> ringLl128Rate; ///< most of a channel
  std::array<double, 3> treeLl128Rate; ///< most of a channel
  std::array<double, 3> treeRate;      ///< most of a channel
  double networkOverhead;              ///< seconds for each hop of a ring that spans nodes; by the processor
  double plateau;                      ///< factor of the latency of long rings between nodes
  auto operator<=>(const NcclTuning &) const = default;
};

/// The tuning of the newest architecture that is not newer than `computeCapability`; V100 at least.
const NcclTuning &ncclTuning(int computeCapability);

/// All-reduce, all-gather, reduce-scatter and broadcast. `bytes` as for collectiveCost; links.nccl is set.
CollectiveCost ncclCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links);

} // namespace cleave::partitioner
