// Accepts connections, challenges them, and rejects those that are not ranks.
#include "runtime/comm/socket/PendingConnection.h"

#include "runtime/base/Counted.h"
#include "runtime/base/RandomBits.h"
#include "runtime/comm/socket/SecretProof.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
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

/// Drops the connection that has said nothing for longest; one that is being challenged only if there is no other.
void ConnectionAcceptor::drop() {
  const auto silent = std::find_if(waiting.begin(), waiting.end(), [](const auto &pending) { return !pending.nonce; });
  waiting.erase(silent == waiting.end() ? waiting.begin() : silent);
  ++dropped;
  warnOnce("dropped", fmt::format("more connections come at once than the {} that may wait, so those that say nothing "
                                  "are closed; a rank among them tries again",
                                  most));
}

/// Accepts what has arrived at the listener. If there are too many connections, or no descriptor is left, drops one.
void ConnectionAcceptor::acceptAll() {
  while (Socket socket = acceptFrom(listener)) {
    PendingConnection &pending = waiting.emplace_back();
    pending.from = Endpoint::ofPeer(socket);
    pending.socket = std::move(socket);
    if (waiting.size() > most)
      drop();
  }
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
  if (full && !waiting.empty())
    drop();
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

/// Why a connection is not one of a rank of this job.
struct Rejection {
  std::string why;
  std::optional<Error> told = {}; ///< to the other side, if it may be a rank that is wrong
};

static std::optional<Rejection> whyRejected(const PendingConnection &pending, const std::string &secret) {
  if (pending.nonce && pending.got < sizeof pending.hello)
    return Rejection{"it did not answer the challenge"};
  if (!pending.known()) {
    std::string why = "its first bytes are";
    for (size_t i = 0; i < std::min<size_t>(pending.got, 8); ++i)
      why += fmt::format(" {:02x}", reinterpret_cast<const uint8_t *>(&pending.hello)[i]);
    return Rejection{why};
  }
  if (const uint32_t theirs = pending.hello.version; theirs != rendezvousProtocol)
    return Rejection{fmt::format("it speaks protocol {}, rank 0 speaks {}", theirs, rendezvousProtocol),
                     environmentError(fmt::format("rank 0 speaks protocol {}, {} speaks {}: all ranks must run the "
                                                  "same program",
                                                  rendezvousProtocol, pending.from.text(), theirs))};
  if (pending.knows(secret))
    return {};
  return Rejection{secret.empty() ? "it has a secret (CLEAVE_SECRET, CLEAVE_SECRET_FILE), rank 0 has none"
                                  : "it does not know the job's secret",
                   userError("rank 0 does not accept the secret of this rank: all ranks need the same CLEAVE_SECRET or "
                             "CLEAVE_SECRET_FILE, or none")};
}

void ConnectionAcceptor::warnOnce(const std::string &kind, const std::string &text) {
  if (warned.insert(kind).second)
    std::fputs(fmt::format("warning: {}\n", text).c_str(), stderr);
}

bool ConnectionAcceptor::reject(const PendingConnection &pending, const std::string &secret) {
  const std::optional<Rejection> found = whyRejected(pending, secret);
  if (!found)
    return false;
  if (rejected++ == 0)
    firstRejected = fmt::format("{}: {}", pending.from.text(), found->why);
  if (found->told) {
    warnOnce(found->told->status == Status::User ? "secret" : "protocol",
             fmt::format("a connection from {} is refused: {}", pending.from.text(), found->why));
    refuse(pending.socket, *found->told);
  }
  return true;
}

std::string ConnectionAcceptor::text() const {
  std::string text;
  if (rejected)
    text = fmt::format("; rejected, because they are no ranks of this job: {}, the first from {}",
                       counted(rejected, "connection"), firstRejected);
  if (dropped)
    text += fmt::format("; closed, because too many came at once: {}", counted(dropped, "connection"));
  return text;
}

Socket requireListener(Socket listener) {
  if (!listener)
    throw environmentError(fmt::format("no port to listen at: {}", std::strerror(errno)));
  return listener;
}

Socket admit(PendingConnection pending) {
  const Answer answer; // fits into the buffer of a new socket
  sendAll(pending.socket, &answer, sizeof answer, Clock::now(), -1);
  return std::move(pending.socket);
}

void refuse(const Socket &socket, const Error &error) {
  const std::string text = std::string(error.what()).substr(0, longestRefusal);
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
