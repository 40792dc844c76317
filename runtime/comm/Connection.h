// A stream of bytes between two ranks, a TCP connection (socket/SocketStream.h) or shared memory (SharedMessages.h),
// with framing. It never blocks. An expected frame is read directly to its destination. An early frame is stored in a
// reusable buffer, so that a loop allocates memory only until the maximum has been reached; the buffer grows with the
// bytes that arrive. Where a frame must begin and none does, bytes have been lost: an error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

namespace cleave {

/// Precedes every block of bytes. In the host's byte order, which the handshake has verified.
struct FrameHeader {
  uint64_t channel = 0; ///< a group's channel, or 0: a message
  uint32_t tag = 0;
  int32_t microbatch = 0;
  uint64_t bytes = 0;
  uint32_t number = 0; ///< of the frame in its stream
  uint32_t check = 0;  ///< of the other fields, so that a frame is not taken for what follows lost bytes
  uint32_t ownCheck() const;
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

/// Outgoing frames for reuse.
class OutgoingPool {
public:
  void reserve(size_t count);
  Outgoing &take();
  void giveBack(Outgoing &frame) { idle.push_back(&frame); }

private:
  std::vector<std::unique_ptr<Outgoing>> all;
  std::vector<Outgoing *> idle;
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
  bool hasRoom(size_t bytes) const { return held <= most && bytes <= most - held; }
  Buffer take(size_t bytes);
  /// A buffer for a frame that announces this many bytes: for all of them if there is one, otherwise for the first.
  Buffer takeFor(size_t bytes);
  /// Enlarges a buffer; keeps the bytes that it has.
  void grow(Buffer &buffer, size_t bytes);
  void giveBack(Buffer buffer);

private:
  static constexpr size_t most = size_t{64} << 20;
  size_t held = 0;
  std::vector<Buffer> idle;
};

/// Carries a connection's bytes.
class ByteStream {
public:
  virtual ~ByteStream() = default;
  /// Moves as many bytes as possible without waiting; returns how many. Negative: the other side has gone.
  virtual ssize_t write(std::span<iovec> parts) = 0;
  virtual ssize_t read(std::byte *to, size_t most) = 0;
  /// For poll(); -1: none.
  virtual int fd() const { return -1; }
  /// How many bytes to read at once if a frame needs fewer.
  virtual size_t readAhead() const = 0;
};

class Connection {
public:
  Connection(std::unique_ptr<ByteStream> stream, unsigned peer, EarlyBuffers &buffers);

  unsigned peer() const { return other; }
  int fd() const { return closed ? -1 : stream->fd(); }
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
  bool take(std::byte *to, size_t most, size_t &count);
  bool fill();
  bool place();
  bool receive();
  void finish();
  void checkHeader();
  void checkSize(const FrameHeader &found) const;

  std::unique_ptr<ByteStream> stream;
  unsigned other;
  EarlyBuffers &buffers;
  bool closed = false;
  Outgoing *head = nullptr, *tail = nullptr;
  uint32_t sent = 0, taken = 0; ///< frames

  struct Early {
    FrameHeader header;
    EarlyBuffers::Buffer buffer;
  };
  Incoming incoming;
  std::vector<Early> early;       ///< in order of arrival
  std::vector<std::byte> staging; ///< bytes [begin, end) were read but not processed
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
