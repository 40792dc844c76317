// One TCP connection between two ranks, framed: collectives and messages share it. It never blocks; whoever waits calls
// write() and read() when poll() says so. A frame that is expected is read to where it belongs; one that comes early is
// kept in a buffer that is used again, so that a loop allocates only until it has seen its worst case.
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <memory>
#include <span>

namespace cleave {

/// Before every block of bytes. In the host's byte order, which the greeting has checked.
struct FrameHeader {
  uint64_t channel = 0; ///< a group's, or 0: a message
  uint32_t tag = 0;
  int32_t microbatch = 0;
  uint64_t bytes = 0;
  bool sameKey(const FrameHeader &other) const {
    return channel == other.channel && tag == other.tag && microbatch == other.microbatch;
  }
};

/// A frame on its way out. The memory may not change and this may not move until it is done.
struct Outgoing {
  FrameHeader header;
  const std::byte *data = nullptr;
  size_t written = 0; ///< header included
  bool done = true;
  unsigned peer = 0;
  Outgoing *next = nullptr;
};

/// Where the next frame with this key goes. One at a time for a connection.
struct Incoming {
  FrameHeader header;
  std::byte *data = nullptr;
  bool active = false; ///< until it is there
};

/// Buffers for frames that come before they are asked for. Shared by a rank's connections.
class EarlyBuffers {
public:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    size_t capacity = 0, used = 0;
  };
  /// Whether this much more may wait without anybody asking for it.
  bool hasRoom(size_t bytes) const { return held + bytes <= most; }
  Buffer take(size_t bytes);
  void giveBack(Buffer buffer);

private:
  static constexpr size_t most = size_t{64} << 20;
  size_t held = 0;
  std::vector<Buffer> idle;
};

class Connection {
public:
  Connection(Socket socket, unsigned peer, EarlyBuffers &buffers);

  unsigned peer() const { return other; }
  int fd() const { return closed ? -1 : socket.fd(); }
  /// The other side has closed it, or it failed.
  bool isClosed() const { return closed; }
  bool sends() const { return head; }
  bool awaits() const { return incoming.active; }
  /// Whether poll() should look for something to read.
  bool reads() const { return !parked || incoming.active; }

  /// Starts a frame and writes what fits at once.
  void start(Outgoing &frame, const FrameHeader &header, const void *data);
  /// Asks for a frame; awaits() says when it is there. Throws an environment error where it has another size.
  void expect(const FrameHeader &header, void *data);
  /// Keeps a frame for expect() as if it had come: a rank's message to itself.
  void keep(const FrameHeader &header, const void *data);
  /// Writes and reads what can be without waiting; whether anything moved.
  bool write();
  bool read();
  /// Forgets frames that were not begun and what is expected; a frame that was begun spoils the connection.
  void forget();

private:
  bool fill();
  bool place();
  bool receive();
  void finish();
  void checkSize(const FrameHeader &found) const;

  Socket socket;
  unsigned other;
  EarlyBuffers &buffers;
  bool closed = false;
  Outgoing *head = nullptr, *tail = nullptr;

  struct Early {
    FrameHeader header;
    EarlyBuffers::Buffer buffer;
  };
  Incoming incoming;
  std::vector<Early> early;             ///< in the order they came
  std::unique_ptr<std::byte[]> staging; ///< bytes [begin, end) were read and not yet looked at
  size_t begin = 0, end = 0;
  FrameHeader current;
  bool inFrame = false; ///< `current` is valid
  bool placed = false;  ///< its bytes have a place: `target`, which lies in `kept` or where expect() said
  bool direct = false;  ///< the latter
  bool parked = false;  ///< it must wait until it is asked for
  std::byte *target = nullptr;
  size_t received = 0;
  EarlyBuffers::Buffer kept;
};

} // namespace cleave
