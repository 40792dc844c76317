// Rank 0 listens and tells the others where, through the communication that they already have.
#include "runtime/comm/socket/Heartbeats.h"

#include "runtime/base/Error.h"
#include "runtime/base/RandomBits.h"
#include "runtime/comm/socket/Introduce.h"
#include "runtime/comm/socket/PendingConnection.h"

#include <algorithm>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sstream>
#include <unistd.h>

namespace cleave {

namespace {

/// Where rank 0 listens for heartbeats, and the number that a connection must present. Sent as a line of text.
struct HeartbeatListener {
  uint64_t job = 0;
  uint16_t port = 0;
  std::vector<std::string> addresses;

  std::vector<uint8_t> bytes() const {
    const std::string text = fmt::format("{} {} {}", job, port, fmt::join(addresses, " "));
    return {text.begin(), text.end()};
  }
  static HeartbeatListener fromBytes(const std::vector<uint8_t> &bytes) {
    HeartbeatListener read;
    std::istringstream words(std::string(bytes.begin(), bytes.end()));
    words >> read.job >> read.port;
    for (std::string name; words >> name;)
      read.addresses.push_back(name);
    return read;
  }
};

/// The addresses at which rank 0 can be reached for heartbeats: this host's name and addresses.
std::vector<std::string> ownAddresses() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::vector<std::string> texts{name};
  ifaddrs *list = nullptr;
  if (::getifaddrs(&list) != 0)
    return texts;
  for (const ifaddrs *each = list; each; each = each->ifa_next) {
    char text[NI_MAXHOST];
    const sockaddr *address = each->ifa_addr;
    if (!address || !(each->ifa_flags & IFF_UP) || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
      continue;
    const socklen_t bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      texts.push_back(text);
  }
  ::freeifaddrs(list);
  return texts;
}

/// Listens at a loopback address and adds it to `addresses`; listens at all addresses if the host has none.
Socket listenAtLoopback(std::vector<std::string> &addresses) {
  std::string problem;
  for (const char *name : {"127.0.0.1", "::1"})
    for (const Endpoint &place : resolve(name, 0, problem))
      if (Socket made = listenAt(place)) {
        addresses.push_back(name);
        return made;
      }
  addresses = ownAddresses();
  return listenOn(0);
}

/// Rank 0: listens and fills `where`, except for the number of the job.
Socket listenForHeartbeats(bool oneHost, HeartbeatListener &where) {
  // MPI does not tell by which address other hosts reach this one.
  Socket listener = requireListener(oneHost ? listenAtLoopback(where.addresses) : listenOn(0));
  if (!oneHost)
    where.addresses = ownAddresses();
  where.port = Endpoint::ofSelf(listener).port();
  return listener;
}

/// Rank 0: accepts one connection from every other rank and drops other connections.
std::vector<Socket> acceptHeartbeats(const Socket &listener, unsigned size, uint64_t job, double seconds) {
  std::vector<Socket> links(size);
  const auto deadline = deadlineIn(seconds);
  ConnectionAcceptor acceptor(listener, -1, size);
  for (unsigned left = size - 1; left > 0;) {
    std::optional<PendingConnection> pending = acceptor.next(deadline);
    if (!pending)
      throw environmentError(fmt::format("no connection for heartbeats from rank {} within {} s",
                                         fmt::join(missingRanks(links), ", "), seconds));
    const Hello &said = pending->hello;
    if (!pending->knows("") || said.job != job || said.rank == 0 || said.rank >= size || links[said.rank])
      continue;
    links[said.rank] = admit(std::move(*pending));
    --left;
  }
  return links;
}

/// The addresses of rank 0, each once.
std::vector<Endpoint> placesOf(const HeartbeatListener &where, std::string &problem) {
  std::vector<Endpoint> places;
  for (const std::string &name : where.addresses)
    for (const Endpoint &place : resolve(name, where.port, problem))
      if (std::find(places.begin(), places.end(), place) == places.end())
        places.push_back(place);
  return places;
}

/// Other ranks: connect to rank 0.
Socket connectToHeartbeats(const HeartbeatListener &where, unsigned rank, unsigned size, double seconds) {
  std::string problem;
  const std::vector<Endpoint> places = placesOf(where, problem);
  const auto deadline = deadlineIn(seconds);
  const Hello hello{.size = size, .rank = rank, .job = where.job};
  Socket link = connectToRank(places, hello, "", deadline, -1, problem);
  if (!link)
    throw environmentError(
        fmt::format("no connection for heartbeats to rank 0 at port {} within {} s: {}", where.port, seconds, problem));
  return link;
}

} // namespace

std::vector<Socket> connectHeartbeats(unsigned rank, unsigned size, bool oneHost,
                                      const std::function<void(std::vector<uint8_t> &)> &share, double seconds) {
  if (size == 1)
    return {};
  raiseDescriptorLimit(size);
  HeartbeatListener where;
  Socket listener;
  std::vector<uint8_t> bytes;
  if (rank == 0) {
    where.job = randomBits() | 1;
    listener = listenForHeartbeats(oneHost, where);
    bytes = where.bytes();
  }
  share(bytes);
  if (rank == 0)
    return acceptHeartbeats(listener, size, where.job, seconds);
  std::vector<Socket> links;
  links.push_back(connectToHeartbeats(HeartbeatListener::fromBytes(bytes), rank, size, seconds));
  return links;
}

} // namespace cleave
