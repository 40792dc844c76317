// Heartbeat connections between processes that can already communicate (MPI).
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <functional>
#include <vector>

namespace cleave {

/// Rank 0's connections to every other rank by rank, the others' to rank 0, in PeerWatch's format. `oneHost`: all run
/// on this host, so rank 0 listens at a loopback address. `share` broadcasts rank 0's bytes. Throws environmentError
/// that names the rank.
std::vector<Socket> connectHeartbeats(unsigned rank, unsigned size, bool oneHost,
                                      const std::function<void(std::vector<uint8_t> &)> &share, double seconds);

} // namespace cleave
