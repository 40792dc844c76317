// The side of the rendezvous that accepts: connections that have yet to say which rank they are, and to prove that they
// know the job's secret.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/comm/socket/RendezvousMessages.h"
#include "runtime/comm/socket/Socket.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cleave {

/// An incoming connection. If `got` < sizeof hello, the hello is incomplete or invalid.
struct PendingConnection {
  Socket socket;
  Endpoint from;
  Hello hello; ///< the last
  size_t got = 0;
  std::optional<Nonce> nonce; ///< once it was challenged
  bool known() const { return got == sizeof hello && hello.word == rendezvousMagic; }
  /// Whether its hello proves that it knows the secret.
  bool knows(const std::string &secret) const;
};

/// Accepts connections and challenges them. A silent connection blocks no one, and many silent ones are dropped in
/// favour of newer ones; a rank whose connection is dropped tries again. What keeps a rank out is printed as a warning
/// the first time, because the meeting goes on.
class ConnectionAcceptor {
public:
  /// `expected`: the number of connections that will come.
  ConnectionAcceptor(const Socket &listener, int alarm, size_t expected)
      : listener(listener), alarm(alarm), most(expected + 32) {}
  /// The next connection that has answered its challenge, or that cannot be a rank; nullopt at the deadline or the
  /// alarm.
  std::optional<PendingConnection> next(Clock::time_point deadline);
  /// Whether a connection is not one of a rank of this job. Counts it, and says why to a rank that it keeps out.
  bool reject(const PendingConnection &pending, const std::string &secret);
  /// For the error message of a failed rendezvous: how many connections were rejected or dropped.
  std::string text() const;

private:
  std::optional<PendingConnection> takeAnswered();
  void acceptAll();
  void drop();
  void warnOnce(const std::string &kind, const std::string &text);
  const Socket &listener;
  int alarm;
  size_t most; ///< maximum number of waiting connections
  std::vector<PendingConnection> waiting;
  size_t rejected = 0, dropped = 0;
  std::string firstRejected;
  std::set<std::string> warned; ///< kinds
};

/// Returns the listener; throws the error in errno if it is empty.
Socket requireListener(Socket listener);

/// Tells a rank that it is accepted, and returns its connection.
Socket admit(PendingConnection pending);

/// Tells a rank why it is refused; ignores a closed connection.
void refuse(const Socket &socket, const Error &error);

/// The ranks from `first` on to which there is no link; `links` by rank.
std::vector<unsigned> missingRanks(const std::vector<Socket> &links, unsigned first = 1);

} // namespace cleave
