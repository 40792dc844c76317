// Rendezvous: rank 0 accepts the other ranks, and all ranks connect to each other.
#include "runtime/comm/socket/Rendezvous.h"

#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/RandomBits.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/socket/AgentStore.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <optional>
#include <poll.h>
#include <span>
#include <sstream>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

namespace cleave {

namespace {

constexpr uint64_t magic = 0x0a45'5641'454c'430dull; // "\rCLEAVE\n"; differs in another byte order
constexpr uint32_t protocol = 5;

using Nonce = std::array<uint64_t, 2>;
using Proof = std::array<uint8_t, 16>;

/// What a rank sends to every rank that it connects to, rank 0 first. It says it twice: first without a proof; then, as
/// the answer to the other's challenge, with one. In the host's byte order; every version begins with these 48 bytes,
/// so that programs of different versions name both.
struct Hello {
  uint64_t word = magic;
  uint32_t version = protocol, size = 0, rank = 0, port = 0;
  uint64_t job = 0; ///< 0 while unknown
  Proof proof{};    ///< proves that the sender knows the job's secret, and has just received the challenge
};
static_assert(std::has_unique_object_representations_v<Hello> && sizeof(Hello) == 48);

/// The job's secret: CLEAVE_SECRET, or the content of the file CLEAVE_SECRET_FILE; empty if neither is set.
std::string jobSecret() {
  if (const char *text = std::getenv("CLEAVE_SECRET"))
    return text;
  const char *file = std::getenv("CLEAVE_SECRET_FILE");
  return file && *file ? readTextFile(file, Status::User, 1 << 16) : "";
}

/// The first half of the HMAC-SHA-256 (RFC 2104) of a challenge and the hello that answers it.
Proof proofOf(Hello hello, const Nonce &nonce, const std::string &secret) {
  hello.proof = {};
  std::array<uint8_t, sizeof nonce + sizeof hello> text;
  std::memcpy(text.data(), &nonce, sizeof nonce);
  std::memcpy(text.data() + sizeof nonce, &hello, sizeof hello);
  std::array<uint8_t, 32> code;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), text.size(), code.data(),
            nullptr))
    throw environmentError("libcrypto (OpenSSL) cannot compute HMAC-SHA-256");
  Proof proof;
  std::copy_n(code.begin(), proof.size(), proof.begin());
  return proof;
}

/// What answers a hello, followed by `bytes` bytes: a challenge, rank 0's table of addresses, or the reason for a
/// refusal.
struct Answer {
  uint64_t word = magic;
  uint32_t status = 0, bytes = 0; ///< status: 0, or an exit status
  uint64_t job = 0;
};

/// The answer to the first hello.
struct Challenge {
  Answer answer{.bytes = sizeof(Nonce)};
  Nonce nonce{};
};

struct Place {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;
};

/// An incoming connection. If `got` < sizeof hello, the hello is incomplete or invalid.
struct Guest {
  Socket socket;
  Endpoint from;
  Hello hello; ///< the last
  size_t got = 0;
  std::optional<Nonce> nonce; ///< once the guest was challenged
  bool known() const { return got == sizeof hello && hello.word == magic; }
  /// Whether its hello proves that it knows the secret.
  bool knows(const std::string &secret) const {
    return known() && nonce &&
           CRYPTO_memcmp(proofOf(hello, *nonce, secret).data(), hello.proof.data(), sizeof hello.proof) == 0;
  }
};

/// Accepts connections and challenges them. A silent connection blocks no one, and many silent ones are dropped in
/// favour of newer ones.
class Reception {
public:
  /// `guests`: the expected number.
  Reception(const Socket &listener, int alarm, size_t guests) : listener(listener), alarm(alarm), most(guests + 32) {}
  /// The next connection that has answered its challenge, or that cannot be a rank; nullopt at the deadline or the
  /// alarm.
  std::optional<Guest> next(Clock::time_point deadline);

private:
  bool listen(Guest &guest);
  const Socket &listener;
  int alarm;
  size_t most; ///< maximum number of waiting connections
  std::vector<Guest> waiting;
};

/// Reads from a connection and challenges it. Returns true if its last hello is complete or invalid; closes a
/// connection that ended without sending anything.
bool Reception::listen(Guest &guest) {
  const uint64_t expected = magic;
  for (;;) {
    if (guest.got == sizeof guest.hello) {
      if (guest.nonce || guest.hello.version != protocol)
        return true;
      guest.nonce = {randomBits(), randomBits()};
      guest.got = 0;
      const Challenge challenge{.nonce = *guest.nonce}; // fits into the empty buffer of a new socket
      sendAll(guest.socket, &challenge, sizeof challenge, Clock::now(), -1);
    }
    auto *at = reinterpret_cast<char *>(&guest.hello) + guest.got;
    const ssize_t found = ::recv(guest.socket.fd(), at, sizeof guest.hello - guest.got, MSG_DONTWAIT);
    if (found < 0 && (errno == EAGAIN || errno == EINTR))
      return false;
    if (found <= 0) {
      if (guest.got == 0 && !guest.nonce)
        guest.socket.close();
      return bool(guest.socket);
    }
    guest.got += static_cast<size_t>(found);
    if (std::memcmp(&guest.hello.word, &expected, std::min(guest.got, sizeof expected)) != 0)
      return true;
  }
}

std::optional<Guest> Reception::next(Clock::time_point deadline) {
  for (;;) {
    for (auto guest = waiting.begin(); guest != waiting.end();) {
      const bool spoke = listen(*guest);
      if (spoke) {
        Guest found = std::move(*guest);
        waiting.erase(guest);
        return found;
      }
      guest = guest->socket ? guest + 1 : waiting.erase(guest);
    }
    std::vector<pollfd> polls{{listener.fd(), POLLIN, 0}, {alarm, POLLIN, 0}};
    for (const Guest &guest : waiting)
      polls.push_back({guest.socket.fd(), POLLIN, 0});
    const int ready = ::poll(polls.data(), polls.size(), millisecondsUntil(deadline));
    if ((ready == 0 && Clock::now() >= deadline) || (ready > 0 && polls[1].revents))
      return {};
    while (Socket socket = acceptFrom(listener)) {
      Guest &guest = waiting.emplace_back();
      guest.from = Endpoint::ofPeer(socket);
      guest.socket = std::move(socket);
      if (waiting.size() > most) // drops the one that has been silent longest
        waiting.erase(waiting.begin());
    }
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    if (full && !waiting.empty())
      waiting.erase(waiting.begin());
    else if (full)
      throw environmentError(fmt::format("a rank's connection cannot be accepted: {}", std::strerror(errno)));
  }
}

/// Tells a rank why it is refused; ignores a closed connection.
void refuse(const Socket &socket, const Error &error) {
  const std::string text = error.what();
  const Answer answer{magic, static_cast<uint32_t>(error.status), static_cast<uint32_t>(text.size()), 0};
  const auto deadline = deadlineIn(1);
  sendAll(socket, &answer, sizeof answer, deadline, -1);
  sendAll(socket, text.data(), text.size(), deadline, -1);
}

/// Connections that are not ranks of this job: rejected and counted.
class Strangers {
public:
  /// Whether a guest is a stranger.
  bool has(const Guest &guest, const std::string &secret) {
    std::string why;
    if (guest.nonce && guest.got < sizeof guest.hello) {
      why = "it did not answer the challenge";
    } else if (!guest.known()) {
      why = "its first bytes are";
      for (size_t i = 0; i < std::min<size_t>(guest.got, 8); ++i)
        why += fmt::format(" {:02x}", reinterpret_cast<const uint8_t *>(&guest.hello)[i]);
    } else if (guest.hello.version == protocol && !guest.knows(secret))
      why = secret.empty() ? "it has a secret (CLEAVE_SECRET), rank 0 has none" : "it does not know the job's secret";
    if (why.empty())
      return false;
    if (count++ == 0)
      first = fmt::format("{}: {}", guest.from.text(), why);
    return true;
  }
  /// For the error message of a failed rendezvous.
  std::string text() const {
    return count == 0
               ? ""
               : fmt::format("; {} connections were rejected because they are not ranks of this job, the first from {}",
                             count, first);
  }

private:
  size_t count = 0;
  std::string first;
};

/// The reason why a guest cannot be the rank that it claims to be.
std::optional<Error> misfit(const Guest &guest, const TorchEnvironment &who, const std::vector<Socket> &links) {
  const Hello &hello = guest.hello;
  const std::string from = guest.from.text();
  if (hello.version != protocol)
    return environmentError(fmt::format("rank 0 speaks protocol {}, {} speaks {}: all ranks must run the same program",
                                        protocol, from, hello.version));
  if (hello.size != who.size)
    return userError(fmt::format("WORLD_SIZE={} at rank 0, but WORLD_SIZE={} at rank {} ({}): all ranks must agree",
                                 who.size, hello.size, hello.rank, from));
  if (hello.rank == 0 || hello.rank >= who.size)
    return userError(
        fmt::format("RANK={} at {}: another rank from 1 to {} is expected", hello.rank, from, who.size - 1));
  if (links[hello.rank])
    return userError(fmt::format("RANK={} is used twice, by {} and {}", hello.rank,
                                 Endpoint::ofPeer(links[hello.rank]).text(), from));
  return {};
}

/// Whether all ranks run on this host, so that a loopback address suffices.
bool onOneHost(const TorchEnvironment &who) {
  const bool named = who.address == "localhost" || who.address.starts_with("127.") || who.address == "::1";
  return named || who.localSize == who.size;
}

/// Listens at `place`, or at all addresses if it is a loopback address and other hosts take part.
Socket listenNear(const Endpoint &place, const TorchEnvironment &who) {
  return place.isAny() || (place.isLoopback() && !onOneHost(who)) ? listenOn(place.port()) : listenAt(place);
}

/// Listens at the first address of MASTER_ADDR that belongs to this host; at all addresses if none does (address
/// translation).
Socket listenAtAddress(const TorchEnvironment &who, uint16_t port) {
  for (const Endpoint &place : who.masterAt(port)) {
    Socket made = listenNear(place, who);
    if (made || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
      return made;
  }
  return listenOn(port);
}

Socket listenAtMaster(const TorchEnvironment &who) {
  const uint16_t port = who.storeKey.empty() ? who.port : 0;
  Socket listener = listenAtAddress(who, port);
  for (int tries = 0; !listener && errno == EADDRINUSE && tries < 20; ++tries) { // a previous owner may just be ending
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    listener = listenAtAddress(who, port);
  }
  if (!listener && errno == EADDRINUSE)
    throw environmentError(fmt::format(
        "MASTER_PORT={}: another process of this host has taken the port (perhaps a second one with RANK=0)",
        who.port));
  if (!listener)
    throw environmentError(
        fmt::format("MASTER_PORT={}: rank 0 cannot listen there: {}", who.port, std::strerror(errno)));
  return listener;
}

/// The socket for ranks above this one, if any.
Socket listenForRanks(Socket listener) {
  if (!listener)
    throw environmentError(fmt::format("no port to listen at: {}", std::strerror(errno)));
  return listener;
}

std::vector<unsigned> missing(const std::vector<Socket> &links) {
  std::vector<unsigned> ranks;
  for (unsigned rank = 1; rank < links.size(); ++rank)
    if (!links[rank])
      ranks.push_back(rank);
  return ranks;
}

/// Rank 0: waits for all ranks, then sends them the address table.
void receive(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline, double seconds) {
  meeting.master = listenAtMaster(who);
  const Socket &master = meeting.master;
  meeting.listener = listenForRanks(listenNear(Endpoint::ofSelf(master).withPort(0), who));
  if (!who.storeKey.empty()) {
    const bool given = !meeting.secret.empty(); // a secret given by the user is not published in the store
    if (!given)
      meeting.secret = fmt::format("{:016x}{:016x}", randomBits(), randomBits());
    AgentStore(who, deadline).publish({Endpoint::ofSelf(master).port(), given ? "" : meeting.secret});
  }
  std::vector<Place> table(who.size);
  table[0].port = Endpoint::ofSelf(meeting.listener).port();
  meeting.links.resize(who.size);
  Reception reception(master, -1, who.size);
  Strangers strangers;
  const auto fail = [&](const Error &error, const Socket *guest) {
    if (guest)
      refuse(*guest, error);
    for (const Socket &link : meeting.links)
      if (link)
        refuse(link, error);
    throw error;
  };
  for (unsigned left = who.size - 1; left > 0;) {
    std::optional<Guest> guest = reception.next(deadline);
    if (!guest)
      fail(environmentError(fmt::format("no connection from rank {} within {} s (WORLD_SIZE={}, MASTER_PORT={}){}",
                                        fmt::join(missing(meeting.links), ", "), seconds, who.size, who.port,
                                        strangers.text())),
           nullptr);
    if (strangers.has(*guest, meeting.secret))
      continue;
    if (const auto error = misfit(*guest, who, meeting.links))
      fail(*error, &guest->socket);
    table[guest->hello.rank] = {guest->from.address(), static_cast<uint16_t>(guest->hello.port)};
    meeting.links[guest->hello.rank] = std::move(guest->socket);
    --left;
  }
  const Answer answer{magic, 0, static_cast<uint32_t>(table.size() * sizeof(Place)), meeting.job};
  for (unsigned rank = 1; rank < who.size; ++rank)
    if (sendAll(meeting.links[rank], &answer, sizeof answer, deadline, -1) != Transfer::Done ||
        sendAll(meeting.links[rank], table.data(), answer.bytes, deadline, -1) != Transfer::Done)
      fail(environmentError(fmt::format("rank {} closed its connection before all ranks had arrived", rank)), nullptr);
  for (const Place &place : table)
    meeting.places.emplace_back(place.address, place.port);
}

/// Retries until there is a listener.
Socket connectPatiently(std::span<const Endpoint> places, Clock::time_point deadline, int alarm, std::string &problem) {
  for (auto pause = std::chrono::milliseconds(10);; pause = std::min(2 * pause, std::chrono::milliseconds(500))) {
    for (const Endpoint &place : places) {
      Socket made = connectTo(place, std::min(deadline, deadlineIn(20)), alarm);
      if (made || errno == ECANCELED)
        return made;
      problem = std::strerror(errno);
    }
    if (Clock::now() >= deadline)
      return Socket();
    pollfd wait{alarm, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(std::min<int64_t>(pause.count(), millisecondsUntil(deadline)))) > 0)
      return Socket();
  }
}

/// If `secret` is empty, reads it from the launcher's store.
Socket connectToMaster(const TorchEnvironment &who, Clock::time_point deadline, double seconds, std::string &secret) {
  const std::string given = secret;
  for (;;) {
    const bool store = !who.storeKey.empty();
    const AgentStore::Said said = store ? AgentStore(who, deadline).find() : AgentStore::Said{who.port, ""};
    const uint16_t port = said.port;
    secret = given.empty() ? said.secret : given;
    std::string problem;
    const std::vector<Endpoint> places = who.masterAt(port);
    // The store may hold values from before a restart: read it again.
    const auto until = store ? std::min(deadline, deadlineIn(2)) : deadline;
    if (Socket made = connectPatiently(places, until, -1, problem))
      return made;
    if (Clock::now() >= deadline)
      throw environmentError(fmt::format("no rank 0 answers at MASTER_ADDR={}, {}={} within {} s: {}", who.address,
                                         store ? "port" : "MASTER_PORT", port, seconds, problem));
  }
}

/// An answer and how it was received.
struct Received {
  Transfer done = Transfer::Closed;
  Answer answer;
  std::string body;
  size_t got = 0; ///< bytes of `answer`
};

Received receiveAnswer(const Socket &from, Clock::time_point deadline, int alarm) {
  Received received;
  received.done = receiveAll(from, &received.answer, sizeof received.answer, deadline, alarm, &received.got);
  if (received.done != Transfer::Done || received.answer.word != magic)
    return received;
  received.body.resize(received.answer.bytes);
  received.done = receiveAll(from, received.body.data(), received.body.size(), deadline, alarm);
  return received;
}

/// Says who this rank is and answers the challenge. Returns nullopt if that was sent, otherwise what came instead of a
/// challenge.
std::optional<Received> introduce(const Socket &to, Hello hello, const std::string &secret, Clock::time_point deadline,
                                  int alarm) {
  Received received;
  received.done = sendAll(to, &hello, sizeof hello, deadline, alarm);
  if (received.done == Transfer::Done)
    received = receiveAnswer(to, deadline, alarm);
  Nonce nonce;
  if (received.done != Transfer::Done || received.answer.status != 0 || received.body.size() != sizeof nonce)
    return received;
  std::memcpy(&nonce, received.body.data(), sizeof nonce);
  hello.proof = proofOf(hello, nonce, secret);
  received.done = sendAll(to, &hello, sizeof hello, deadline, alarm);
  return received.done == Transfer::Done ? std::nullopt : std::optional(received);
}

/// The same for a rank known to be one. Returns whether it was sent, otherwise `problem` tells why not.
bool introduced(const Socket &to, const Hello &hello, const std::string &secret, Clock::time_point deadline, int alarm,
                std::string &problem) {
  const std::optional<Received> refused = introduce(to, hello, secret, deadline, alarm);
  if (refused)
    problem = refused->done == Transfer::TimedOut ? "it does not answer"
              : refused->done == Transfer::Closed ? "it closed the connection"
                                                  : "its answer is not a challenge";
  return !refused;
}

/// Other ranks: identify themselves and wait for the address table.
void arrive(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline, double seconds) {
  Socket link = connectToMaster(who, deadline, seconds, meeting.secret);
  const Endpoint master = Endpoint::ofPeer(link), here = master.isLoopback() ? master : Endpoint::ofSelf(link);
  // Not earlier: a free port might be the one that rank 0 needs.
  meeting.listener = listenForRanks(listenNear(here.withPort(0), who));
  const Hello hello{.size = who.size, .rank = who.rank, .port = Endpoint::ofSelf(meeting.listener).port()};
  const auto verdict = deadline + std::chrono::seconds(2); // at the deadline rank 0 says which ranks are missing
  const std::optional<Received> refused = introduce(link, hello, meeting.secret, verdict, -1);
  const auto [done, answer, body, got] = refused ? *refused : receiveAnswer(link, verdict, -1);
  if (got > 0 && std::memcmp(&answer.word, &hello.word, std::min(got, sizeof magic)) != 0)
    throw environmentError(
        fmt::format("the listener at {} (MASTER_ADDR={}) is not rank 0 of this program", master.text(), who.address));
  if (done == Transfer::TimedOut)
    throw environmentError(
        fmt::format("rank 0 at {} has not met all {} ranks within {} s", master.text(), who.size, seconds));
  if (done != Transfer::Done)
    throw environmentError(
        fmt::format("rank 0 at {} closed the connection before all {} ranks had arrived", master.text(), who.size));
  if (answer.status != 0)
    throw Error(answer.status == uint32_t(Status::User) ? Status::User : Status::Environment, body);
  std::vector<Place> table(who.size);
  if (body.size() != table.size() * sizeof(Place))
    throw environmentError(fmt::format("the table of addresses must have {} bytes, rank 0 sent {}",
                                       table.size() * sizeof(Place), body.size()));
  std::memcpy(table.data(), body.data(), body.size());
  meeting.job = answer.job;
  // Rank 0, and ranks known by loopback addresses of its host, are reached at the address where this rank found rank 0.
  for (unsigned rank = 0; rank < who.size; ++rank) {
    const Endpoint place(table[rank].address, table[rank].port);
    meeting.places.push_back(rank == 0 || place.isLoopback() ? master.withPort(place.port()) : place);
  }
  meeting.links.push_back(std::move(link));
}

} // namespace

/// Raises the descriptor limit, for a connection to every other rank.
static void raiseDescriptorLimit(unsigned ranks) {
  rlimit limit{};
  const rlim_t needed = rlim_t{2} * ranks + 256; // rank 0 has two per rank
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Meeting meet(const TorchEnvironment &who, double seconds) {
  const auto deadline = deadlineIn(seconds);
  raiseDescriptorLimit(who.size);
  Meeting meeting;
  if (who.size == 1)
    return meeting;
  meeting.secret = jobSecret();
  if (who.rank != 0) {
    arrive(meeting, who, deadline, seconds);
    return meeting;
  }
  meeting.job = randomBits() | 1;
  receive(meeting, who, deadline, seconds);
  return meeting;
}

namespace {

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

/// Rank 0: accepts one connection from every other rank and drops strangers.
std::vector<Socket> receiveHeartbeats(const Socket &listener, unsigned size, uint64_t job, double seconds) {
  std::vector<Socket> links(size);
  const auto deadline = deadlineIn(seconds);
  Reception reception(listener, -1, size);
  for (unsigned left = size - 1; left > 0;) {
    std::optional<Guest> guest = reception.next(deadline);
    if (!guest)
      throw environmentError(fmt::format("no connection for heartbeats from rank {} within {} s",
                                         fmt::join(missing(links), ", "), seconds));
    const Hello &said = guest->hello;
    if (!guest->knows("") || said.job != job || said.rank == 0 || said.rank >= size || links[said.rank])
      continue;
    links[said.rank] = std::move(guest->socket);
    --left;
  }
  return links;
}

} // namespace

std::vector<Socket> connectHeartbeats(unsigned rank, unsigned size, bool oneHost,
                                      const std::function<void(std::vector<uint8_t> &)> &share, double seconds) {
  if (size == 1)
    return {};
  raiseDescriptorLimit(size);
  Socket listener;
  std::string said;
  if (rank == 0) {
    std::vector<std::string> addresses;
    if (oneHost) {
      listener = listenForRanks(listenAtLoopback(addresses));
    } else { // MPI does not tell by which address other hosts reach this one
      listener = listenForRanks(listenOn(0));
      addresses = ownAddresses();
    }
    said = fmt::format("{} {} {}", randomBits() | 1, Endpoint::ofSelf(listener).port(), fmt::join(addresses, " "));
  }
  std::vector<uint8_t> bytes(said.begin(), said.end());
  share(bytes);
  std::istringstream words(std::string(bytes.begin(), bytes.end()));
  Hello hello{.size = size, .rank = rank};
  uint16_t port = 0;
  words >> hello.job >> port;
  if (rank == 0)
    return receiveHeartbeats(listener, size, hello.job, seconds);
  std::vector<Endpoint> places;
  std::string problem;
  for (std::string name; words >> name;)
    for (const Endpoint &place : resolve(name, port, problem))
      if (std::find(places.begin(), places.end(), place) == places.end())
        places.push_back(place);
  const auto deadline = deadlineIn(seconds);
  std::vector<Socket> links;
  links.push_back(connectPatiently(places, deadline, -1, problem));
  if (!links[0] || !introduced(links[0], hello, "", deadline, -1, problem))
    throw environmentError(
        fmt::format("no connection for heartbeats to rank 0 at port {} within {} s: {}", port, seconds, problem));
  return links;
}

/// Answers every process that comes after the meeting; ends when the event `end` is set.
static void refuseAll(const Socket &master, const TorchEnvironment &who, const std::string &secret, int end) {
  Reception reception(master, end, who.size);
  Strangers strangers;
  const std::vector<Socket> none(who.size);
  pollfd ended{end, POLLIN, 0};
  while (::poll(&ended, 1, 0) == 0)
    try {
      const std::optional<Guest> guest = reception.next(deadlineIn(3600));
      if (!guest || strangers.has(*guest, secret))
        continue;
      const auto other = misfit(*guest, who, none);
      refuse(guest->socket,
             other ? *other
                   : userError(fmt::format("RANK={} is used twice: the {} ranks of the job at MASTER_ADDR={}, "
                                           "MASTER_PORT={} had already met when {} came",
                                           guest->hello.rank, who.size, who.address, who.port, guest->from.text())));
    } catch (const Error &) { // too many open files: retry later
      ::poll(&ended, 1, 1000);
    }
}

Doorkeeper::Doorkeeper(Socket listener, const TorchEnvironment &who, const std::string &secret)
    : master(std::move(listener)), end(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!end)
    throw environmentError(fmt::format("no event descriptor: {}", std::strerror(errno)));
  thread = startThread("late ranks", [this, who, secret] { refuseAll(master, who, secret, end.fd()); });
}

Doorkeeper::~Doorkeeper() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(end.fd(), &one, sizeof one);
  thread.join();
}

std::vector<Socket> connectAll(const Meeting &meeting, const TorchEnvironment &who, double seconds, int alarm) {
  const auto deadline = deadlineIn(seconds);
  std::vector<Socket> all(who.size);
  const Hello hello{.size = who.size, .rank = who.rank, .job = meeting.job};
  for (unsigned rank = 0; rank < who.rank; ++rank) {
    std::string problem;
    all[rank] = connectPatiently({&meeting.places[rank], 1}, deadline, alarm, problem);
    if (!all[rank] && Clock::now() < deadline)
      return {};
    if (all[rank] && introduced(all[rank], hello, meeting.secret, deadline, alarm, problem))
      continue;
    pollfd failed{alarm, POLLIN, 0}; // if the other rank has failed, the alarm tells why
    if (::poll(&failed, 1, std::min(2000, millisecondsUntil(deadline))) > 0)
      return {};
    throw environmentError(fmt::format("no connection to rank {} at {} within {} s: {}", rank,
                                       meeting.places[rank].text(), seconds, problem));
  }
  Reception reception(meeting.listener, alarm, who.size);
  for (unsigned left = who.size - 1 - who.rank; left > 0;) {
    std::optional<Guest> guest = reception.next(deadline);
    if (!guest && Clock::now() < deadline)
      return {};
    if (!guest) {
      std::vector<unsigned> absent;
      for (unsigned rank = who.rank + 1; rank < who.size; ++rank)
        if (!all[rank])
          absent.push_back(rank);
      throw environmentError(fmt::format("no connection from rank {} within {} s", fmt::join(absent, ", "), seconds));
    }
    const Hello &said = guest->hello;
    if (said.job != meeting.job || said.rank <= who.rank || said.rank >= who.size || all[said.rank] ||
        !guest->knows(meeting.secret))
      continue; // a stranger
    all[said.rank] = std::move(guest->socket);
    --left;
  }
  return all;
}

} // namespace cleave
