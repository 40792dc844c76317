// Messages and collectives over a rank's connections.
#include "runtime/comm/socket/SocketWorld.h"

#include "runtime/base/Error.h"
#include "runtime/comm/socket/SocketStream.h"

#include <cassert>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <poll.h>
#include <sched.h>
#include <thread>

namespace cleave {

static constexpr double verdictSeconds = 2; // how long after a closed connection a failure report may arrive
static constexpr int mostSleep = 1000;      // milliseconds after which a sleeping rank looks whether all are stalled

/// One rank's membership of a group: exchanges blocks over the world's connections.
class SocketCommunicator final : public ExchangeCommunicator {
public:
  SocketCommunicator(SocketWorld &world, std::vector<uint32_t> list)
      : ExchangeCommunicator(static_cast<unsigned>(list.size()), placeInGroup(list, world.rank()), world.scratch),
        world(world), ranks(std::move(list)), what(fmt::format("ranks {}", fmt::join(ranks, ", "))),
        frames(ranks.size()) {
    channel = 14695981039346656037ull; // FNV-1a of the members: equal member lists mean the same group
    for (uint32_t rank : ranks)
      channel = (channel ^ rank) * 1099511628211ull;
    channel |= 1;
  }
  void barrier() override;
  void broadcastBytes(std::byte *data, size_t bytes) override;

private:
  void exchange(const std::byte *from, std::byte *to) override;
  void gatherBytes(const std::byte *from, std::byte *to) override;
  void waitShared(const SharedWait &awaited) override;
  void moveMessages() override {
    if (!world.sending.empty())
      world.move();
  }
  void expect(unsigned m, void *data, size_t bytes);
  void start(unsigned m, const void *data, size_t bytes);
  void finish();
  /// Calls `visit` with every other member, starting with the next, so that not all start with member 0.
  template <typename Visit> void others(Visit visit) {
    for (unsigned i = 1; i < size(); ++i)
      visit((member() + i) % size());
  }

  SocketWorld &world;
  std::vector<uint32_t> ranks;
  std::string what;
  uint64_t channel;
  std::vector<Outgoing> frames; ///< to each member
};

void SocketCommunicator::expect(unsigned m, void *data, size_t bytes) {
  world.expect(*world.connections[ranks[m]], {channel, 0, 0, bytes}, data);
}

void SocketCommunicator::start(unsigned m, const void *data, size_t bytes) {
  world.connections[ranks[m]]->start(frames[m], {channel, 0, 0, bytes}, data);
}

void SocketCommunicator::finish() {
  auto done = [&] {
    for (unsigned m = 0; m < size(); ++m)
      if (!frames[m].done || world.connections[ranks[m]]->awaits())
        return false;
    return true;
  };
  world.wait(done, [&] { return what; });
}

void SocketCommunicator::exchange(const std::byte *from, std::byte *to) {
  others([&](unsigned m) {
    if (receives.bytes[m])
      expect(m, to + receives.places[m], static_cast<size_t>(receives.bytes[m]));
  });
  others([&](unsigned m) {
    if (sends.bytes[m])
      start(m, from + sends.places[m], static_cast<size_t>(sends.bytes[m]));
  });
  if (const int own = sends.bytes[member()])
    std::memcpy(to + receives.places[member()], from + sends.places[member()], static_cast<size_t>(own));
  finish();
}

void SocketCommunicator::gatherBytes(const std::byte *from, std::byte *to) {
  const int own = receives.bytes[member()];
  others([&](unsigned m) {
    if (receives.bytes[m])
      expect(m, to + receives.places[m], static_cast<size_t>(receives.bytes[m]));
  });
  if (own) {
    others([&](unsigned m) { start(m, from, static_cast<size_t>(own)); });
    std::memcpy(to + receives.places[member()], from, static_cast<size_t>(own));
  }
  finish();
}

/// Binomial tree: member m receives from m without its lowest set bit.
void SocketCommunicator::broadcastBytes(std::byte *data, size_t bytes) {
  const unsigned me = member();
  unsigned below = 1; // the lowest set bit of `me`, or for member 0 the first power of two >= size
  while (below < size() && !(me & below))
    below *= 2;
  if (me != 0) {
    expect(me - below, data, bytes);
    finish();
  }
  for (unsigned bit = below / 2; bit > 0; bit /= 2)
    if (me + bit < size())
      start(me + bit, data, bytes);
  finish();
}

void SocketCommunicator::waitShared(const SharedWait &awaited) {
  world.awaited = world.connections[ranks[awaited.member]].get();
  world.wait([&] { return awaited.done(); }, [&] { return what; },
             [&](Clock::time_point) {
               awaited.rest();
               world.sleep(Clock::now()); // takes what has arrived, and notices closed connections
             });
  world.awaited = nullptr;
}

/// Dissemination barrier: after k rounds a member knows that 2^k have arrived. Hensgen, Finkel and Manber, "Two
/// algorithms for barrier synchronization" (1988).
void SocketCommunicator::barrier() {
  for (unsigned step = 1; step < size(); step *= 2) {
    expect((member() + size() - step) % size(), nullptr, 0);
    start((member() + step) % size(), nullptr, 0);
    finish();
  }
}

SocketWorld::SocketWorld(const TorchEnvironment &who, double limit) : me(who.rank), ranks(who.size), scratch(who.size) {
  Meeting meeting = meet(who, limit);
  if (meeting.master)
    door = std::make_unique<Doorkeeper>(std::move(meeting.master), who, meeting.secret);
  watch = std::make_unique<PeerWatch>(me, std::move(meeting.links));
  std::vector<Socket> sockets;
  try {
    sockets = connectAll(meeting, who, limit, watch->alarm());
  } catch (const Error &error) {
    fail(error.what());
  }
  watch->check();
  assert(sockets.size() == ranks && "only a failure ends the meeting early");
  for (unsigned rank = 0; rank < ranks; ++rank)
    connections.push_back(
        std::make_unique<Connection>(std::make_unique<SocketStream>(std::move(sockets[rank])), rank, buffers));
  polls.resize(ranks + 1);
  reserveSends(64);
}

SocketWorld::~SocketWorld() {
  watch.reset(); // say goodbye before the connections close
}

Communicator &SocketWorld::group(std::span<const uint32_t> list) {
  SocketCommunicator &found = find(list);
  const double kept = std::exchange(seconds, ExchangeCommunicator::sharingSeconds);
  found.share(ranks);
  seconds = kept;
  return found;
}

SocketCommunicator &SocketWorld::find(std::span<const uint32_t> list) {
  std::vector<uint32_t> key(list.begin(), list.end());
  auto &communicator = communicators[key];
  if (!communicator)
    communicator = std::make_unique<SocketCommunicator>(*this, key);
  return *communicator;
}

SocketCommunicator &SocketWorld::all() {
  std::vector<uint32_t> list(ranks);
  std::iota(list.begin(), list.end(), 0u);
  return find(list);
}

void SocketWorld::setTimeout(double value) {
  seconds = value;
  watch->setSilence(value);
}

void SocketWorld::fail(const std::string &text) {
  watch->check(); // an earlier failure takes precedence
  watch->abort(text, Status::Environment);
  throw environmentError(text);
}

void SocketWorld::expect(Connection &from, const FrameHeader &header, void *data) {
  try {
    from.expect(header, data);
  } catch (const Error &error) { // the sizes differ
    fail(error.what());
  }
}

/// Writes pending output and reads expected input; returns whether any bytes moved.
bool SocketWorld::move() {
  bool moved = shared.move();
  for (auto &connection : connections) {
    if (connection->sends())
      moved |= connection->write();
    if (connection->awaits())
      moved |= connection->read();
  }
  return moved;
}

/// Waits until a connection is ready and processes it, or a rank has failed.
void SocketWorld::sleep(Clock::time_point deadline) {
  for (unsigned rank = 0; rank < ranks; ++rank) {
    const Connection &c = *connections[rank];
    const int events = (c.sends() ? POLLOUT : 0) | (c.reads() ? POLLIN : 0);
    polls[rank] = {events ? c.fd() : -1, static_cast<short>(events), 0};
  }
  polls[ranks] = {watch->alarm(), POLLIN, 0};
  if (::poll(polls.data(), polls.size(), std::min(millisecondsUntil(deadline), mostSleep)) <= 0)
    return;
  for (unsigned rank = 0; rank < ranks; ++rank)
    if (polls[rank].revents) {
      bool moved = connections[rank]->sends() && connections[rank]->write();
      if (connections[rank]->reads())
        moved |= connections[rank]->read();
      if (moved)
        watch->advance();
    }
}

/// Whether this rank waits for the other one.
bool SocketWorld::delays(const Connection &connection) const {
  return connection.awaits() || connection.sends() || &connection == awaited;
}

/// Reports a rank whose connection closed while it was waited for.
template <typename Done> void SocketWorld::checkConnections(Done done) {
  for (auto &connection : connections)
    if (connection->isClosed() && delays(*connection) && !done()) {
      watch->waitForFailure(verdictSeconds); // usually the rank has failed, and the report is about to arrive
      fail(fmt::format("rank {} has closed its connection", connection->peer()));
    }
}

void SocketWorld::expire(const std::string &what, bool stalled) {
  std::vector<unsigned> silent;
  for (auto &connection : connections)
    if (delays(*connection))
      silent.push_back(connection->peer());
  const std::string text = watch->expired(stalled ? watch->silentSeconds() : seconds, what, silent);
  fail(stalled ? text + "; all ranks wait, so what it sent was lost" : text);
}

template <typename Done, typename Describe, typename Rest>
void SocketWorld::wait(Done done, Describe describe, Rest rest) {
  constexpr unsigned turns = 20; // idle rounds before the thread sleeps
  watch->check();
  watch->setWaiting(true);
  const auto deadline = deadlineIn(seconds);
  for (unsigned idleTurns = 0; !done();) {
    watch->check();
    bool moved = false;
    try {
      moved = move();
      if (!moved && idleTurns >= turns)
        rest(deadline);
    } catch (const Error &error) { // a frame of the wrong size
      fail(error.what());
    }
    if (moved) {
      watch->advance();
      idleTurns = 0;
    } else
      checkConnections(done);
    const bool stalled = watch->stalled();
    if ((stalled || Clock::now() > deadline) && !done())
      expire(describe(), stalled);
    if (!moved && ++idleTurns < turns)
      ::sched_yield();
  }
  watch->setWaiting(false);
}

/// Waits for a message to or from a rank.
template <typename Done, typename Describe> void SocketWorld::waitMessage(unsigned peer, Done done, Describe describe) {
  if (!shared.with(peer))
    return wait(done, describe);
  try {
    if (shared.spin(done))
      return;
  } catch (const Error &error) { // a frame of the wrong size
    fail(error.what());
  }
  awaited = connections[peer].get();
  wait(done, describe, [&](Clock::time_point) {
    shared.rest(peer);
    sleep(Clock::now()); // takes what has arrived, and notices closed connections
    shared.move();       // what was sent before a connection closed
  });
  awaited = nullptr;
}

void SocketWorld::link(std::span<const MessagePeer> peers) {
  const double kept = std::exchange(seconds, ExchangeCommunicator::sharingSeconds);
  shared.link(*this, peers, buffers);
  seconds = kept;
}

void SocketWorld::send(const void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  const FrameHeader header{0, tag, microbatch, bytes};
  if (peer == me)
    return connections[me]->keep(header, data);
  Outgoing &frame = pool.take();
  sending.push_back(&frame);
  Connection *const memory = shared.with(peer);
  (memory ? *memory : *connections[peer]).start(frame, header, data);
}

void SocketWorld::waitFor(Outgoing &frame) {
  waitMessage(
      frame.peer, [&] { return frame.done; },
      [&] { return fmt::format("{} to be received by rank {}", frame.header.name(), frame.peer); });
  pool.giveBack(frame);
}

void SocketWorld::waitSend(uint32_t tag, int32_t microbatch) {
  for (size_t i = 0; i < sending.size();) {
    if (sending[i]->header.tag != tag || sending[i]->header.microbatch != microbatch) {
      ++i;
      continue;
    }
    waitFor(*sending[i]);
    sending.erase(sending.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void SocketWorld::waitAllSends() {
  while (!sending.empty()) {
    waitFor(*sending.back());
    sending.pop_back();
  }
}

void SocketWorld::recv(void *data, size_t bytes, unsigned peer, uint32_t tag, int32_t microbatch) {
  watch->check();
  Connection *const memory = shared.with(peer);
  Connection &from = memory ? *memory : *connections[peer];
  const FrameHeader header{0, tag, microbatch, bytes};
  expect(from, header, data);
  waitMessage(
      peer, [&] { return !from.awaits(); }, [&] { return fmt::format("{} from rank {}", header.name(), peer); });
}

void SocketWorld::detach() {
  if (sending.empty() && !watch->failed())
    return;
  for (auto &connection : connections)
    connection->forget();
  shared.forget();
  for (Outgoing *frame : sending)
    pool.giveBack(*frame);
  sending.clear();
}

void SocketWorld::barrier() { all().barrier(); }

void SocketWorld::broadcastBytes(std::byte *data, size_t bytes) { all().broadcastBytes(data, bytes); }

} // namespace cleave
