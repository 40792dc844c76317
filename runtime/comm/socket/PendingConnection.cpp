// Accepts connections, challenges them, and rejects those that are not ranks.
#include "runtime/comm/socket/PendingConnection.h"

#include "runtime/base/RandomBits.h"
#include "runtime/comm/socket/SecretProof.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>

namespace cleave {

bool PendingConnection::knows(const std::string &secret) const {
  return known() && nonce && hasProof(hello, *nonce, secret);
}

/// Reads from a connection and challenges it. Returns true if its last hello is complete or invalid; closes a
/// connection that ended without sending anything.
static bool readHello(PendingConnection &pending) {
  for (;;) {
    if (pending.got == sizeof pending.hello) {
      if (pending.nonce || pending.hello.version != rendezvousProtocol)
        return true;
      pending.nonce = {randomBits(), randomBits()};
      pending.got = 0;
      const Challenge challenge{.nonce = *pending.nonce}; // fits into the empty buffer of a new socket
      sendAll(pending.socket, &challenge, sizeof challenge, Clock::now(), -1);
    }
    auto *at = reinterpret_cast<char *>(&pending.hello) + pending.got;
    const ssize_t found = ::recv(pending.socket.fd(), at, sizeof pending.hello - pending.got, MSG_DONTWAIT);
    if (found < 0 && (errno == EAGAIN || errno == EINTR))
      return false;
    if (found <= 0) {
      if (pending.got == 0 && !pending.nonce)
        pending.socket.close();
      return bool(pending.socket);
    }
    pending.got += static_cast<size_t>(found);
    if (std::memcmp(&pending.hello.word, &rendezvousMagic, std::min(pending.got, sizeof rendezvousMagic)) != 0)
      return true;
  }
}

/// Reads from all waiting connections up to the first that has said everything; takes that one, and drops closed ones.
std::optional<PendingConnection> ConnectionAcceptor::takeAnswered() {
  for (auto pending = waiting.begin(); pending != waiting.end();) {
    if (readHello(*pending)) {
      PendingConnection answered = std::move(*pending);
      waiting.erase(pending);
      return answered;
    }
    pending = pending->socket ? pending + 1 : waiting.erase(pending);
  }
  return {};
}

/// Accepts what has arrived at the listener. If there are too many connections, or no descriptor is left, drops the one
/// that has been silent longest.
void ConnectionAcceptor::acceptAll() {
  while (Socket socket = acceptFrom(listener)) {
    PendingConnection &pending = waiting.emplace_back();
    pending.from = Endpoint::ofPeer(socket);
    pending.socket = std::move(socket);
    if (waiting.size() > most)
      waiting.erase(waiting.begin());
  }
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
  if (full && !waiting.empty())
    waiting.erase(waiting.begin());
  else if (full)
    throw environmentError(fmt::format("a rank's connection cannot be accepted: {}", std::strerror(errno)));
}

std::optional<PendingConnection> ConnectionAcceptor::next(Clock::time_point deadline) {
  for (;;) {
    if (std::optional<PendingConnection> answered = takeAnswered())
      return answered;
    std::vector<pollfd> polls{{listener.fd(), POLLIN, 0}, {alarm, POLLIN, 0}};
    for (const PendingConnection &pending : waiting)
      polls.push_back({pending.socket.fd(), POLLIN, 0});
    const int ready = ::poll(polls.data(), polls.size(), millisecondsUntil(deadline));
    if ((ready == 0 && Clock::now() >= deadline) || (ready > 0 && polls[1].revents))
      return {};
    acceptAll();
  }
}

/// Why a connection is not one of a rank of this job; empty if it may be one.
static std::string whyRejected(const PendingConnection &pending, const std::string &secret) {
  if (pending.nonce && pending.got < sizeof pending.hello)
    return "it did not answer the challenge";
  if (!pending.known()) {
    std::string why = "its first bytes are";
    for (size_t i = 0; i < std::min<size_t>(pending.got, 8); ++i)
      why += fmt::format(" {:02x}", reinterpret_cast<const uint8_t *>(&pending.hello)[i]);
    return why;
  }
  if (pending.hello.version == rendezvousProtocol && !pending.knows(secret))
    return secret.empty() ? "it has a secret (CLEAVE_SECRET), rank 0 has none" : "it does not know the job's secret";
  return "";
}

bool RejectedConnections::reject(const PendingConnection &pending, const std::string &secret) {
  const std::string why = whyRejected(pending, secret);
  if (why.empty())
    return false;
  if (count++ == 0)
    first = fmt::format("{}: {}", pending.from.text(), why);
  return true;
}

std::string RejectedConnections::text() const {
  return count == 0
             ? ""
             : fmt::format("; {} connections were rejected because they are not ranks of this job, the first from {}",
                           count, first);
}

Socket requireListener(Socket listener) {
  if (!listener)
    throw environmentError(fmt::format("no port to listen at: {}", std::strerror(errno)));
  return listener;
}

void refuse(const Socket &socket, const Error &error) {
  const std::string text = error.what();
  const Answer answer{.status = static_cast<uint32_t>(error.status), .bytes = static_cast<uint32_t>(text.size())};
  const auto deadline = deadlineIn(1);
  sendAll(socket, &answer, sizeof answer, deadline, -1);
  sendAll(socket, text.data(), text.size(), deadline, -1);
}

std::vector<unsigned> missingRanks(const std::vector<Socket> &links, unsigned first) {
  std::vector<unsigned> ranks;
  for (unsigned rank = first; rank < links.size(); ++rank)
    if (!links[rank])
      ranks.push_back(rank);
  return ranks;
}

} // namespace cleave
