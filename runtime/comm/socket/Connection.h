// One TCP connection between two ranks, with framing: collectives and messages share it. It never blocks; call write()
// and read() when poll() reports it ready. An expected frame is read directly to its destination. An early frame is
// stored in a reusable buffer, so that a loop allocates memory only until the maximum has been reached.
#pragma once
#include "runtime/comm/socket/Socket.h"

#include <memory>
#include <span>

namespace cleave {

/// Precedes every block of bytes. In the host's byte order, which the handshake has verified.
struct FrameHeader {
  uint64_t channel = 0; ///< a group's channel, or 0: a message
  uint32_t tag = 0;
  int32_t microbatch = 0;
  uint64_t bytes = 0;
  static constexpr uint32_t gatherTag =
      UINT32_MAX; ///< of data that rank 0 gathers; with gatherMicrobatch, which no plan uses
  static constexpr int32_t gatherMicrobatch = INT32_MIN;
  /// For error messages, as "message 3 of microbatch 1".
  std::string name() const;
  bool sameKey(const FrameHeader &other) const {
    return channel == other.channel && tag == other.tag && microbatch == other.microbatch;
  }
};

/// An outgoing frame. Neither its memory nor this object may change or move until it is sent.
struct Outgoing {
  FrameHeader header;
  const std::byte *data = nullptr;
  size_t written = 0; ///< including the header
  bool done = true;
  unsigned peer = 0;
  Outgoing *next = nullptr;
};

/// Destination of the next frame with this key. One at a time per connection.
struct Incoming {
  FrameHeader header;
  std::byte *data = nullptr;
  bool active = false; ///< until it has arrived
};

/// Buffers for frames that arrive before they are requested. Shared by a rank's connections.
class EarlyBuffers {
public:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    size_t capacity = 0, used = 0;
  };
  /// Whether this many more bytes may be buffered before they are requested.
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
  /// Whether the other side has closed the connection or it failed.
  bool isClosed() const { return closed; }
  bool sends() const { return head; }
  bool awaits() const { return incoming.active; }
  /// Whether poll() should wait for input.
  bool reads() const { return !parked || incoming.active; }

  /// Starts a frame and writes as much as possible without blocking.
  void start(Outgoing &frame, const FrameHeader &header, const void *data);
  /// Requests a frame; awaits() becomes false when it has arrived. Throws an environment error if its size differs.
  void expect(const FrameHeader &header, void *data);
  /// Stores a frame for expect() as if it had been received: a rank's message to itself.
  void keep(const FrameHeader &header, const void *data);
  /// Writes or reads without blocking; returns whether any bytes moved.
  bool write();
  bool read();
  /// Drops frames not yet begun and the expected frame; a frame in progress makes the connection unusable.
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
  std::vector<Early> early;             ///< in order of arrival
  std::unique_ptr<std::byte[]> staging; ///< bytes [begin, end) were read but not processed
  size_t begin = 0, end = 0;
  FrameHeader current;
  bool inFrame = false; ///< `current` is valid
  bool placed = false;  ///< the destination is known: `target`, in `kept` or as given to expect()
  bool direct = false;  ///< `target` is the memory given to expect()
  bool parked = false;  ///< the frame waits until it is requested
  std::byte *target = nullptr;
  size_t received = 0;
  EarlyBuffers::Buffer kept;
};

} // namespace cleave
