// Measures the machines and the links of ranks that a launcher started (mpirun, srun, torchrun).
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "runtime/comm/Communicator.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// One machine, as its first rank measured it.
struct MeasuredHost {
  Cluster cluster;            ///< measureHost: one node, one kind of device
  std::optional<Link> inside; ///< between all of its ranks; none if it has one
  std::vector<double> groups; ///< gb_per_s of a rank in groups of 2, 4, 8, ... ranks, fewer than all
};

/// Machines with equally many cores, whose measurements differ by at most a fifth, become one group of nodes with the
/// lowest of their values, because a step waits for the slowest; others become kinds of their own: core, core-2, ...
/// Links between ranks replace those between threads. `network`: between machines; needed if there are several.
Cluster joinHosts(const std::vector<MeasuredHost> &hosts, const std::optional<Link> &network);

/// All ranks must call this. The first rank of each machine measures it. Then the first 2, 4, 8, ... and all ranks of
/// each machine exchange messages (measureRing), and the first rank with the first one of every other machine
/// (measureLink; the slowest counts). Returns the cluster on rank 0. Throws environmentError if a rank fails.
std::optional<Cluster> measureRanks(RankEndpoint &world);

/// Measures the link between this rank and `peer`, which must call this at the same time. Latency: half of the time in
/// which 8 bytes travel to `peer` and back; bandwidth: of messages of 8 MiB.
Link measureLink(RankEndpoint &world, unsigned peer);

/// Measures the 1e9 bytes a second that each of `ranks` sends to the next one while it receives as many from the one
/// before, in messages of 8 MiB. All of them, which include this rank, must call this at the same time.
double measureRing(RankEndpoint &world, std::span<const unsigned> ranks);

} // namespace cleave::partitioner
