// Rendezvous: rank 0 accepts the other ranks, and all ranks connect to each other.
#include "runtime/comm/socket/Rendezvous.h"

#include "runtime/base/Error.h"
#include "runtime/base/Printable.h"
#include "runtime/base/RandomBits.h"
#include "runtime/base/Thread.h"
#include "runtime/comm/socket/AgentStore.h"
#include "runtime/comm/socket/Introduce.h"
#include "runtime/comm/socket/PendingConnection.h"
#include "runtime/comm/socket/SecretProof.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

namespace cleave {

namespace {

/// The reason why a connection cannot be of the rank that it claims to be.
std::optional<Error> misfit(const PendingConnection &pending, const TorchEnvironment &who,
                            const std::vector<Socket> &links) {
  const Hello &hello = pending.hello;
  const std::string from = pending.from.text();
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

/// Rank 0: opens both sockets, and publishes the port and the secret if the launcher has a store.
void openSockets(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline) {
  meeting.master = listenAtMaster(who);
  const Endpoint master = Endpoint::ofSelf(meeting.master);
  meeting.listener = requireListener(listenNear(master.withPort(0), who));
  if (who.storeKey.empty())
    return;
  const bool given = !meeting.secret.empty(); // a secret given by the user is not published in the store
  if (!given)
    meeting.secret = fmt::format("{:016x}{:016x}", randomBits(), randomBits());
  AgentStore(who, deadline).publish({master.port(), given ? "" : meeting.secret});
}

/// Rank 0: refuses all ranks that have arrived, and throws the reason.
[[noreturn]] void refuseArrived(const Meeting &meeting, const Error &error) {
  for (const Socket &link : meeting.links)
    if (link)
      refuse(link, error);
  throw error;
}

/// Rank 0: accepts all other ranks; returns the addresses that these gave.
std::vector<RankAddress> acceptRanks(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline,
                                     double seconds) {
  std::vector<RankAddress> table(who.size);
  table[0].port = Endpoint::ofSelf(meeting.listener).port();
  meeting.links.resize(who.size);
  ConnectionAcceptor acceptor(meeting.master, -1, who.size);
  for (unsigned left = who.size - 1; left > 0;) {
    std::optional<PendingConnection> pending = acceptor.next(deadline);
    if (!pending)
      refuseArrived(meeting,
                    environmentError(fmt::format(
                        "no connection from rank {} within {} s (WORLD_SIZE={}, MASTER_PORT={}){}",
                        fmt::join(missingRanks(meeting.links), ", "), seconds, who.size, who.port, acceptor.text())));
    if (acceptor.reject(*pending, meeting.secret))
      continue;
    if (const auto error = misfit(*pending, who, meeting.links)) {
      refuse(pending->socket, *error);
      refuseArrived(meeting, *error);
    }
    const unsigned rank = pending->hello.rank;
    table[rank] = {pending->from.address(), static_cast<uint16_t>(pending->hello.port)};
    meeting.links[rank] = admit(std::move(*pending));
    --left;
  }
  return table;
}

/// Rank 0: sends the addresses to all other ranks.
void sendTable(const Meeting &meeting, const std::vector<RankAddress> &table, Clock::time_point deadline) {
  const Answer answer{.bytes = static_cast<uint32_t>(table.size() * sizeof(RankAddress)), .job = meeting.job};
  for (unsigned rank = 1; rank < table.size(); ++rank)
    if (sendAll(meeting.links[rank], &answer, sizeof answer, deadline, -1) != Transfer::Done ||
        sendAll(meeting.links[rank], table.data(), answer.bytes, deadline, -1) != Transfer::Done)
      refuseArrived(meeting,
                    environmentError(fmt::format("rank {} closed its connection before all ranks had arrived", rank)));
}

/// Rank 0: waits for all ranks, then sends them the address table.
void receive(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline, double seconds) {
  openSockets(meeting, who, deadline);
  const std::vector<RankAddress> table = acceptRanks(meeting, who, deadline, seconds);
  sendTable(meeting, table, deadline);
  for (const RankAddress &entry : table)
    meeting.places.emplace_back(entry.address, entry.port);
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

uint32_t tableBytes(const TorchEnvironment &who) { return static_cast<uint32_t>(who.size * sizeof(RankAddress)); }

/// The table of addresses in rank 0's answer. Throws the error that an answer without one means.
std::vector<RankAddress> tableIn(const ReceivedAnswer &received, const Endpoint &master, const TorchEnvironment &who,
                                 double seconds) {
  const auto &[done, answer, body, foreign] = received;
  if (foreign)
    throw environmentError(
        fmt::format("the listener at {} (MASTER_ADDR={}) is not rank 0 of this program", master.text(), who.address));
  if (done == Transfer::TimedOut)
    throw environmentError(
        fmt::format("rank 0 at {} has not met all {} ranks within {} s", master.text(), who.size, seconds));
  if (done != Transfer::Done)
    throw environmentError(
        fmt::format("rank 0 at {} closed the connection before all {} ranks had arrived", master.text(), who.size));
  if (answer.status != 0)
    throw Error(answer.status == uint32_t(Status::User) ? Status::User : Status::Environment,
                body.empty() ? fmt::format("rank 0 at {} refuses this rank", master.text()) : printable(body, true));
  std::vector<RankAddress> table(who.size);
  if (body.size() != tableBytes(who))
    throw environmentError(
        fmt::format("the table of addresses must have {} bytes, rank 0 sent {}", tableBytes(who), body.size()));
  std::memcpy(table.data(), body.data(), body.size());
  return table;
}

/// Other ranks: identify themselves and wait for the address table.
void arrive(Meeting &meeting, const TorchEnvironment &who, Clock::time_point deadline, double seconds) {
  const auto verdict = deadline + std::chrono::seconds(2); // at the deadline rank 0 says which ranks are missing
  const std::string given = meeting.secret;
  Socket link;
  Endpoint master;
  for (Pause pause(deadline, -1);;) { // until rank 0 accepts this rank: it may drop connections among many
    meeting.secret = given;
    link = connectToMaster(who, deadline, seconds, meeting.secret);
    master = Endpoint::ofPeer(link);
    const Endpoint here = master.isLoopback() ? master : Endpoint::ofSelf(link);
    // Not earlier: a free port might be the one that rank 0 needs.
    meeting.listener = requireListener(listenNear(here.withPort(0), who));
    const Hello hello{.size = who.size, .rank = who.rank, .port = Endpoint::ofSelf(meeting.listener).port()};
    const std::optional<ReceivedAnswer> instead = introduce(link, hello, meeting.secret, verdict, -1);
    if (!instead)
      break;
    if (!instead->dropped() || !pause.wait())
      tableIn(*instead, master, who, seconds); // throws
  }
  const ReceivedAnswer received = receiveAnswer(link, tableBytes(who), verdict, -1);
  const std::vector<RankAddress> table = tableIn(received, master, who, seconds);
  meeting.job = received.answer.job;
  // Rank 0, and ranks known by loopback addresses of its host, are reached at the address where this rank found rank 0.
  for (unsigned rank = 0; rank < who.size; ++rank) {
    const Endpoint place(table[rank].address, table[rank].port);
    meeting.places.push_back(rank == 0 || place.isLoopback() ? master.withPort(place.port()) : place);
  }
  meeting.links.push_back(std::move(link));
}

} // namespace

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

/// Answers every process that comes after the meeting; ends when the event `end` is set.
static void refuseAll(const Socket &master, const TorchEnvironment &who, const std::string &secret, int end) {
  ConnectionAcceptor acceptor(master, end, who.size);
  const std::vector<Socket> none(who.size);
  pollfd ended{end, POLLIN, 0};
  while (::poll(&ended, 1, 0) == 0)
    try {
      const std::optional<PendingConnection> pending = acceptor.next(deadlineIn(3600));
      if (!pending || acceptor.reject(*pending, secret))
        continue;
      const auto other = misfit(*pending, who, none);
      refuse(pending->socket,
             other
                 ? *other
                 : userError(fmt::format("RANK={} is used twice: the {} ranks of the job at MASTER_ADDR={}, "
                                         "MASTER_PORT={} had already met when {} came",
                                         pending->hello.rank, who.size, who.address, who.port, pending->from.text())));
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

/// Connects to the ranks below this one. Returns false if the alarm ended that.
static bool connectToLower(std::vector<Socket> &all, const Meeting &meeting, const TorchEnvironment &who,
                           Clock::time_point deadline, double seconds, int alarm) {
  const Hello hello{.size = who.size, .rank = who.rank, .job = meeting.job};
  for (unsigned rank = 0; rank < who.rank; ++rank) {
    std::string problem;
    all[rank] = connectToRank({&meeting.places[rank], 1}, hello, meeting.secret, deadline, alarm, problem);
    if (all[rank])
      continue;
    pollfd failed{alarm, POLLIN, 0}; // if the other rank has failed, the alarm tells why
    if (::poll(&failed, 1, std::min(2000, millisecondsUntil(deadline))) > 0)
      return false;
    throw environmentError(fmt::format("no connection to rank {} at {} within {} s: {}", rank,
                                       meeting.places[rank].text(), seconds, problem));
  }
  return true;
}

/// Accepts the connections of the ranks above this one. Returns false if the alarm ended that.
static bool acceptHigher(std::vector<Socket> &all, const Meeting &meeting, const TorchEnvironment &who,
                         Clock::time_point deadline, double seconds, int alarm) {
  ConnectionAcceptor acceptor(meeting.listener, alarm, who.size);
  for (unsigned left = who.size - 1 - who.rank; left > 0;) {
    std::optional<PendingConnection> pending = acceptor.next(deadline);
    if (!pending && Clock::now() < deadline)
      return false;
    if (!pending)
      throw environmentError(fmt::format("no connection from rank {} within {} s",
                                         fmt::join(missingRanks(all, who.rank + 1), ", "), seconds));
    const Hello &said = pending->hello;
    if (said.job != meeting.job || said.rank <= who.rank || said.rank >= who.size || all[said.rank] ||
        !pending->knows(meeting.secret))
      continue; // not a rank of this job
    all[said.rank] = admit(std::move(*pending));
    --left;
  }
  return true;
}

std::vector<Socket> connectAll(const Meeting &meeting, const TorchEnvironment &who, double seconds, int alarm) {
  const auto deadline = deadlineIn(seconds);
  std::vector<Socket> all(who.size);
  if (!connectToLower(all, meeting, who, deadline, seconds, alarm) ||
      !acceptHigher(all, meeting, who, deadline, seconds, alarm))
    return {};
  return all;
}

} // namespace cleave
