// How ranks that are processes find each other. Rank 0 listens at MASTER_PORT; the others connect to it, say who they
// are and where they listen themselves; when all have come, rank 0 hands the table of addresses round, and every pair
// of ranks makes a connection. What does not fit (another WORLD_SIZE, a RANK that two have) is one error that names the
// values, on every rank that has come. Strangers on the port are turned away: whoever does not speak as ranks do, and,
// where the job has a secret (CLEAVE_SECRET or CLEAVE_SECRET_FILE, else what rank 0 leaves in torchrun's store),
// whoever does not know it. What connects later must carry the number that rank 0 drew and gave to the ranks that met.
//
// Ranks listen only where the others come from: rank 0 at MASTER_ADDR where that is an address of its host, another
// rank at the address by which it reached rank 0.
#pragma once
#include "runtime/comm/socket/Socket.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <functional>

namespace cleave {

/// What a rank knows when all have come.
struct Meeting {
  std::vector<Socket> links;    ///< to rank 0, kept for heartbeats: as PeerWatch takes them
  Socket listener;              ///< where ranks above this one connect
  std::vector<Endpoint> places; ///< where each rank listens
  std::string secret;           ///< of the job; empty: it has none
  uint64_t job = 0;             ///< drawn by rank 0: tells this meeting's connections from a stranger's
};

/// Waits for all ranks, at most `seconds`. Throws user and environment errors.
Meeting meet(const TorchEnvironment &who, double seconds);

/// Connections for heartbeats between processes that can talk already: rank 0's to every other rank by rank, the others'
/// to rank 0, as PeerWatch takes them. `oneHost`: all run on this host, so rank 0 listens at a loopback address. `share`
/// sends rank 0's bytes to all. Throws environmentError naming the rank.
std::vector<Socket> connectHeartbeats(unsigned rank, unsigned size, bool oneHost,
                                      const std::function<void(std::vector<uint8_t> &)> &share, double seconds);

/// A connection to every other rank, by rank. `alarm`: PeerWatch's; where it ends the wait the result is empty.
std::vector<Socket> connectAll(const Meeting &meeting, const TorchEnvironment &who, double seconds, int alarm);

} // namespace cleave
