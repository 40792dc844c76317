// Rendezvous of ranks that are processes. Rank 0 listens at MASTER_PORT. The others connect to it and send their rank
// and their own listening port. When all have arrived, rank 0 sends them the address table, and every pair of ranks
// connects. A mismatch (another WORLD_SIZE, a RANK used twice) is one error that names the values, on every rank that
// has arrived. Other connections to the port are rejected: those that do not speak the protocol and, if the job has a
// secret (CLEAVE_SECRET or CLEAVE_SECRET_FILE, otherwise the one that rank 0 publishes in torchrun's store), those that
// do not know it. Later connections must present the random number that rank 0 gave to the ranks of this rendezvous.
// Every connection is challenged: it must prove that it knows the secret by an HMAC-SHA-256 over a random number made
// for this connection and over what it says, so that a recorded connection cannot be repeated.
//
// Ranks listen only on the interface that the others use: rank 0 at MASTER_ADDR if that is an address of its host,
// another rank at the address by which it reached rank 0.
#pragma once
#include "runtime/comm/socket/Socket.h"
#include "runtime/comm/socket/TorchEnvironment.h"

#include <thread>

namespace cleave {

/// The result of the rendezvous.
struct Meeting {
  Socket master;                ///< rank 0: the socket at MASTER_PORT
  std::vector<Socket> links;    ///< to rank 0, kept for heartbeats; in PeerWatch's format
  Socket listener;              ///< for ranks above this one
  std::vector<Endpoint> places; ///< where each rank listens
  std::string secret;           ///< of the job; empty if it has none
  uint64_t job = 0;             ///< random number from rank 0: distinguishes this job's connections from others
};

/// Waits for all ranks, at most `seconds`. Throws user and environment errors.
Meeting meet(const TorchEnvironment &who, double seconds);

/// Rank 0 after the meeting: refuses processes that come later, so that they learn at once that their RANK is taken.
class Doorkeeper {
public:
  /// Throws an environment error if no thread can be started.
  Doorkeeper(Socket master, const TorchEnvironment &who, const std::string &secret);
  ~Doorkeeper();
  Doorkeeper(const Doorkeeper &) = delete;

private:
  Socket master, end;
  std::thread thread;
};

/// A connection to every other rank, by rank. `alarm`: PeerWatch's; if it ends the wait, the result is empty.
std::vector<Socket> connectAll(const Meeting &meeting, const TorchEnvironment &who, double seconds, int alarm);

} // namespace cleave
