// Messages between this rank and processes of its host, through shared memory. Every pair of ranks has a segment with a
// ring of bytes for each direction. A connection (Connection.h) writes its frames into one and reads the other, so what
// holds of messages over sockets holds here.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/comm/Connection.h"

#include <map>

namespace cleave {

class SharedMessages {
public:
  SharedMessages();
  ~SharedMessages();
  /// RankEndpoint::link, for an endpoint that has other ways to send.
  void link(RankEndpoint &world, std::span<const MessagePeer> peers, EarlyBuffers &buffers);
  /// The connection with a rank; null if they do not share memory.
  Connection *with(unsigned peer) const;
  /// Writes pending output and reads expected input; returns whether any bytes moved.
  bool move();
  /// Calls move() for a short time until `done`; returns whether it is.
  template <typename Done> bool spin(Done done) {
    for (unsigned i = 0; i < spins; ++i) {
      move();
      if (done())
        return true;
      pause();
    }
    return false;
  }
  /// Moves bytes; if there are none, sleeps until this rank moves some, or for some time.
  void rest(unsigned peer);
  void forget();

private:
  struct Link;
  static void pause();

  unsigned spins = 0;
  std::map<unsigned, std::unique_ptr<Link>> links; ///< by peer; null: the processes cannot share memory
};

} // namespace cleave
