// Rings of bytes, and connections over them.
#include "runtime/comm/SharedMessages.h"

#include "runtime/comm/Event.h"
#include "runtime/comm/SharedSegment.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace cleave {

static constexpr size_t leastRing = 64 << 10;          // bytes
static constexpr size_t mostRing = 8 << 20;            // unless two messages need more
static constexpr size_t copiedBytes = 64 << 10;        // the other side may use a piece while the next one is copied
static constexpr long sleepNanoseconds = 2'000'000;    // how long a sleeping rank does not look for failures
static constexpr long shortSleepNanoseconds = 100'000; // or for room for what it sends to others

namespace {

/// One side's part of a segment. Only this side writes it.
struct Side {
  alignas(64) std::atomic<uint64_t> written; ///< bytes, into the ring that it sends through
  alignas(64) std::atomic<uint64_t> taken;   ///< bytes, from the other ring
  alignas(64) Event moved;                   ///< after both
  uint64_t room;                             ///< size of the ring that it sends through
};

/// What this rank and another one send each other in an iteration, frames' headers included, with space for some more.
size_t ringBytes(uint64_t all, uint64_t largest) {
  const size_t most = std::max<size_t>(mostRing, 2 * largest + leastRing);
  return (std::clamp<size_t>(all + leastRing, leastRing, most) + 63) / 64 * 64;
}

} // namespace

class SharedStream final : public ByteStream {
public:
  /// `side`: 0 for the lower rank of the pair.
  SharedStream(SharedSegment given, unsigned side) : segment(std::move(given)), mine(at(side)), theirs(at(1 - side)) {
    std::byte *const rings = segment.data() + 2 * sizeof(Side);
    out = rings + side * theirs.room;
    in = rings + (1 - side) * mine.room;
  }
  static SharedSegment make(const MessagePeer &peer) {
    const size_t down = ringBytes(peer.sends, peer.largest), up = ringBytes(peer.receives, peer.largest);
    SharedSegment made = SharedSegment::make(2 * sizeof(Side) + down + up);
    if (made) {
      new (made.data()) Side{.written = 0, .taken = 0, .moved = {}, .room = down};
      new (made.data() + sizeof(Side)) Side{.written = 0, .taken = 0, .moved = {}, .room = up};
    }
    return made;
  }

  ssize_t write(std::span<iovec> parts) override {
    const uint64_t begin = mine.written.load(std::memory_order_relaxed);
    uint64_t end = begin;
    for (const iovec &part : parts) {
      const uint64_t whole = end + part.iov_len;
      end = pass(static_cast<std::byte *>(part.iov_base), part.iov_len, end);
      if (end < whole) // the next part must not follow, even if the other side makes room now
        break;
    }
    return moved(end - begin);
  }
  ssize_t read(std::byte *to, size_t most) override {
    const uint64_t begin = mine.taken.load(std::memory_order_relaxed);
    uint64_t at = begin;
    for (;;) {
      const uint64_t there = theirs.written.load(std::memory_order_acquire) - at;
      const size_t bytes = std::min<uint64_t>({most - (at - begin), there, copiedBytes});
      if (!bytes)
        return moved(at - begin);
      around(at, theirs.room, bytes, [&](uint64_t place, size_t done, size_t count) {
        std::memcpy(to + (at - begin) + done, in + place, count);
      });
      at += bytes;
      mine.taken.store(at, std::memory_order_release);
    }
  }
  size_t readAhead() const override { return 0; }

  uint32_t moves() const { return theirs.moved.value(); }
  void sleep(uint32_t seen, long nanoseconds) { theirs.moved.sleep(seen, nanoseconds); }

private:
  Side &at(unsigned side) { return *std::launder(reinterpret_cast<Side *>(segment.data() + side * sizeof(Side))); }
  /// Wakes the other side once for all bytes of a call: waking takes longer than copying a piece.
  ssize_t moved(uint64_t bytes) {
    if (bytes)
      mine.moved.advance();
    return static_cast<ssize_t>(bytes);
  }
  /// Calls visit(place in the ring, bytes before, bytes) for the one or two runs of bytes from `at` on.
  template <typename Visit> static void around(uint64_t at, uint64_t room, size_t bytes, Visit visit) {
    const uint64_t place = at % room;
    const size_t first = std::min<uint64_t>(bytes, room - place);
    visit(place, 0, first);
    if (first < bytes)
      visit(0, first, bytes - first);
  }
  uint64_t pass(const std::byte *from, size_t all, uint64_t at) {
    for (size_t done = 0; done < all;) {
      const uint64_t free = mine.room - (at - theirs.taken.load(std::memory_order_acquire));
      const size_t bytes = std::min<uint64_t>({all - done, free, copiedBytes});
      if (!bytes)
        break;
      around(at, mine.room, bytes, [&](uint64_t place, size_t before, size_t count) {
        std::memcpy(out + place, from + done + before, count);
      });
      done += bytes;
      at += bytes;
      mine.written.store(at, std::memory_order_release);
    }
    return at;
  }

  SharedSegment segment;
  Side &mine, &theirs;
  std::byte *out, *in;
};

struct SharedMessages::Link {
  Link(std::unique_ptr<SharedStream> made, unsigned peer, EarlyBuffers &buffers)
      : stream(*made), connection(std::move(made), peer, buffers) {}
  SharedStream &stream;
  Connection connection;
};

SharedMessages::SharedMessages() = default;
SharedMessages::~SharedMessages() = default;
void SharedMessages::pause() { pauseProcessor(); }

void SharedMessages::link(RankEndpoint &world, std::span<const MessagePeer> peers, EarlyBuffers &buffers) {
  struct Opened {
    unsigned peer;
    SharedSegment segment;
    SharedSegment::Address address;
    bool agreed = false;
  };
  std::vector<Opened> opened;
  for (const MessagePeer &peer : peers)
    if (peer.rank != world.rank() && links.try_emplace(peer.rank).second) {
      Opened &made = opened.emplace_back(peer.rank);
      if (peer.rank > world.rank())
        made.segment = SharedStream::make(peer);
      made.address = made.segment.address();
    }
  spins = spinsOf(world.size());
  const auto each = [&](bool above, auto visit) {
    for (Opened &one : opened)
      if ((one.peer > world.rank()) == above)
        visit(one);
  };
  // The lower rank of a pair makes the segment. All that this sends is sent before it waits for what depends on it.
  each(true, [&](Opened &o) { world.send(&o.address, sizeof o.address, o.peer, setupTag, setupMicrobatch); });
  each(false, [&](Opened &o) {
    world.recv(&o.address, sizeof o.address, o.peer, setupTag, setupMicrobatch);
    o.segment = SharedSegment::open(o.address);
    o.agreed = static_cast<bool>(o.segment);
    world.send(&o.agreed, sizeof o.agreed, o.peer, setupTag, setupMicrobatch);
  });
  each(true, [&](Opened &o) { world.recv(&o.agreed, sizeof o.agreed, o.peer, setupTag, setupMicrobatch); });
  world.waitSend(setupTag, setupMicrobatch);
  for (Opened &o : opened) {
    o.segment.close();
    if (o.agreed)
      links[o.peer] = std::make_unique<Link>(
          std::make_unique<SharedStream>(std::move(o.segment), o.peer < world.rank()), o.peer, buffers);
  }
}

Connection *SharedMessages::with(unsigned peer) const {
  const auto found = links.find(peer);
  return found != links.end() && found->second ? &found->second->connection : nullptr;
}

bool SharedMessages::move() {
  bool moved = false;
  for (const auto &[peer, link] : links) {
    if (link && link->connection.sends())
      moved |= link->connection.write();
    if (link && link->connection.awaits())
      moved |= link->connection.read();
  }
  return moved;
}

void SharedMessages::rest(unsigned peer) {
  SharedStream &stream = links.at(peer)->stream;
  const uint32_t seen = stream.moves();
  if (move())
    return;
  const bool sends = std::any_of(links.begin(), links.end(), [&](const auto &link) {
    return link.first != peer && link.second && link.second->connection.sends();
  });
  stream.sleep(seen, sends ? shortSleepNanoseconds : sleepNanoseconds);
}

void SharedMessages::forget() {
  for (const auto &[peer, link] : links)
    if (link)
      link->connection.forget();
}

} // namespace cleave
