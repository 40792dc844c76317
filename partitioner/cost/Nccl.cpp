// NCCL's estimates for rings and trees.
#include "partitioner/cost/Nccl.h"

#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cleave::partitioner {

namespace {

// Processors: NVIDIA's systems, and most others, have Intel's with V100 and H100 (DGX-1, DGX H100), AMD's with A100
// (DGX A100). Channels: NVLinks of 20 GB/s (src/graph/topo.h); on H100 NCCL finds 12 channels of 30 GB/s.
constexpr NcclTuning tunings[] = {
    {70, 20e9, {39e9, 39e9, 20.4e9}, {20e9, 20e9, 20e9}, {20e9, 20e9, 20e9}, {26.5e9, 18.5e9, 10e9}, 1e-6, 1.9},
    {80, 20e9, {87.7e9, 22.5e9, 19e9}, {20e9, 20e9, 20e9}, {20e9, 20e9, 20e9}, {24e9, 23.6e9, 17.8e9}, 2e-6, 1.4},
    {90,
     30e9,
     {141e9, 39e9, 20.4e9},
     {36.7e9, 36.7e9, 36.7e9},
     {36.7e9, 36.7e9, 29e9},
     {38.7e9, 41.4e9, 36e9},
     1e-6,
     1.4},
};

enum Protocol : uint8_t { Ll, Ll128, Simple };
constexpr Protocol protocols[] = {Ll, Ll128, Simple};

/// Seconds, by protocol.
using Latencies = std::array<double, 3>;
struct Hops {
  Latencies nvlink, pcie, network;
};
constexpr Latencies treeStart{6.8e-6, 14e-6, 8.4e-6}, ringStart{6.6e-6, 14e-6, 8.4e-6};
constexpr Hops treeHops{{0.6e-6, 1.25e-6, 4e-6}, {1e-6, 1.9e-6, 4e-6}, {5e-6, 8.5e-6, 14e-6}};
constexpr Hops ringHops{{0.6e-6, 1.9e-6, 3.4e-6}, {1e-6, 2.5e-6, 5.7e-6}, {2.7e-6, 4e-6, 14e-6}};

/// The latencies of these tables are those of NVLink, PCIe and InfiniBand. Where a cluster file gives more than the
/// table has for a message, every hop takes so much longer.
constexpr double usualNvlink = 3.4e-6, usualPcie = 5.7e-6, usualNetwork = 5e-6;

/// Trees do not follow the model at medium sizes. By protocol; for 64 bytes, 128 bytes, ..., and from 512 MiB on.
constexpr double treeCorrection[3][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, 1}};

/// NCCL takes the factor of the next smaller size. Between sizes it is interpolated here, so that more bytes never take
/// less time.
double correctionOf(Protocol protocol, double bytes) {
  const double at = std::clamp(std::log2(std::max(bytes, 1.0) / 64), 0.0, 23.0);
  const auto low = std::min(static_cast<size_t>(at), size_t{22});
  return std::lerp(treeCorrection[protocol][low], treeCorrection[protocol][low + 1], at - static_cast<double>(low));
}

class Estimate {
public:
  Estimate(plan::CollectiveKind kind, double bytes, const GroupLinks &links)
      : kind(kind), bytes(bytes), links(links), nccl(*links.nccl), n(static_cast<double>(links.members)),
        k(static_cast<double>(links.nodes)), spread(static_cast<size_t>(std::min<int64_t>(links.nodes, 3) - 1)) {}

  TransferSeconds ring(Protocol protocol) const {
    const double graph = slowest(links.networkRate);
    double rate = graph;
    if (protocol == Ll)
      rate = std::min(nccl.llRate[spread], graph / 2);
    else if (protocol == Ll128)
      rate = std::min(graph * 0.92, channels(graph) * nccl.ringLl128Rate[spread]);
    const bool reduces = kind == plan::CollectiveKind::AllReduce, casts = kind == plan::CollectiveKind::Broadcast;
    const double steps = casts ? n : (reduces ? 2 : 1) * (n - 1);
    const double crossing = k == 1 ? 0 : (reduces ? 2 : 1) * (k - 1);
    const double inside =
        k == 1 ? insideHop(ringHops, protocol)
               : std::max(insideHop(ringHops, protocol), nccl.networkOverhead * (protocol == Simple ? 3 : 1));
    // With one device on each node nothing hides the latency of the network.
    double latency = ringStart[protocol] + (steps - crossing) * inside +
                     crossing * networkHop(links.perNode == 1 ? treeHops : ringHops, protocol);
    if (protocol == Simple && k > 1 && reduces && bytes / (channels(graph) * n) >= 64)
      latency *= nccl.plateau;
    return {latency, steps / n * bytes / rate};
  }

  /// Of an all-reduce: along a chain in each node, and a double binary tree between nodes. On two nodes each tree uses
  /// the network in one direction at a time.
  TransferSeconds tree(Protocol protocol) const {
    const double graph = slowest(links.nodes == 2 ? 2 * links.networkRate : links.networkRate);
    double rate = std::min(graph * 0.92, channels(graph) * nccl.treeRate[spread]);
    if (protocol == Ll)
      rate = std::min(rate / 3.8, nccl.llRate[spread]);
    else if (protocol == Ll128)
      rate = std::min(rate * (k == 1 ? 7.0 / 9 : 120.0 / 128), channels(graph) * nccl.treeLl128Rate[spread]);
    const double levels = std::bit_width(static_cast<uint64_t>(links.nodes)) - 1;
    const double latency =
        treeStart[protocol] + 2 * (static_cast<double>(links.perNode - 1) * insideHop(treeHops, protocol) +
                                   levels * networkHop(treeHops, protocol));
    return {latency, 2 * bytes / (rate * correctionOf(protocol, bytes))};
  }

  /// LL128 needs NVLink. (Between nodes it also needs a network card close to each device, as these systems have.)
  bool allows(Protocol protocol) const { return protocol != Ll128 || links.nvlink; }

private:
  double slowest(double network) const {
    return std::min(links.perNode > 1 ? links.insideRate : INFINITY, links.nodes > 1 ? network : INFINITY);
  }
  double channels(double rate) const { return std::max(1.0, std::ceil(rate / nccl.channelRate)); }
  double insideHop(const Hops &hops, Protocol protocol) const {
    const double usual = links.nvlink ? usualNvlink : usualPcie;
    return (links.nvlink ? hops.nvlink : hops.pcie)[protocol] + std::max(0.0, links.insideLatency - usual);
  }
  double networkHop(const Hops &hops, Protocol protocol) const {
    return hops.network[protocol] + std::max(0.0, links.networkLatency - usualNetwork);
  }

  const plan::CollectiveKind kind;
  const double bytes;
  const GroupLinks &links;
  const NcclTuning &nccl;
  const double n, k;
  const size_t spread; ///< index by the number of nodes
};

} // namespace

const NcclTuning &ncclTuning(int computeCapability) {
  const NcclTuning *found = &tunings[0];
  for (const NcclTuning &each : tunings)
    if (each.computeCapability <= computeCapability)
      found = &each;
  return *found;
}

CollectiveCost ncclCost(plan::CollectiveKind kind, double bytes, const GroupLinks &links) {
  const Estimate estimate(kind, bytes, links);
  CollectiveCost best{{INFINITY, 0}, Algorithm::None};
  for (const Protocol protocol : protocols) {
    if (!estimate.allows(protocol))
      continue;
    const CollectiveCost ring{estimate.ring(protocol), Algorithm::Ring};
    if (ring.seconds.all() < best.seconds.all())
      best = ring;
    if (kind != plan::CollectiveKind::AllReduce)
      continue;
    const CollectiveCost tree{estimate.tree(protocol), Algorithm::Tree};
    if (tree.seconds.all() < best.seconds.all())
      best = tree;
  }
  return best;
}

} // namespace cleave::partitioner
