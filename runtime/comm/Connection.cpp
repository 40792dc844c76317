// Frames over one stream of bytes.
#include "runtime/comm/Connection.h"

#include "runtime/base/Error.h"
#include "runtime/comm/Communicator.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace cleave {

static constexpr size_t firstPiece = 1 << 20; // bytes of memory for an early frame before any of it has arrived

std::string FrameHeader::name() const { return channel ? "a block of a collective" : messageName(tag, microbatch); }

uint32_t FrameHeader::ownCheck() const {
  uint64_t mixed = 0;
  for (const uint64_t part :
       {channel, uint64_t{tag} << 32 | static_cast<uint32_t>(microbatch), bytes, uint64_t{number}})
    mixed = (mixed ^ part ^ mixed >> 29) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint32_t>(mixed >> 32);
}

void OutgoingPool::reserve(size_t count) {
  idle.reserve(count);
  while (all.size() < count) {
    all.push_back(std::make_unique<Outgoing>());
    idle.push_back(all.back().get());
  }
}

Outgoing &OutgoingPool::take() {
  if (idle.empty())
    reserve(std::max<size_t>(1, 2 * all.size()));
  Outgoing *frame = idle.back();
  idle.pop_back();
  return *frame;
}

EarlyBuffers::Buffer EarlyBuffers::take(size_t bytes) {
  // Uses the smallest buffer that is large enough, otherwise grows the largest one. The number of buffers never exceeds
  // the largest number in use at one time.
  auto best = idle.end();
  for (auto at = idle.begin(); at != idle.end(); ++at)
    if (best == idle.end() || (best->capacity < bytes ? at->capacity > best->capacity
                                                      : at->capacity >= bytes && at->capacity < best->capacity))
      best = at;
  Buffer found;
  if (best != idle.end()) {
    found = std::move(*best);
    *best = std::move(idle.back());
    idle.pop_back();
  }
  if (found.capacity < bytes) {
    found.memory.reset(new std::byte[bytes]);
    found.capacity = bytes;
  }
  found.used = bytes;
  held += bytes;
  return found;
}

EarlyBuffers::Buffer EarlyBuffers::takeFor(size_t bytes) {
  const bool found = std::any_of(idle.begin(), idle.end(), [&](const Buffer &b) { return b.capacity >= bytes; });
  return take(found ? bytes : std::min(bytes, firstPiece));
}

void EarlyBuffers::grow(Buffer &buffer, size_t bytes) {
  std::unique_ptr<std::byte[]> larger(new std::byte[bytes]);
  std::copy_n(buffer.memory.get(), buffer.used, larger.get());
  held += bytes - buffer.used;
  buffer = {std::move(larger), bytes, bytes};
}

void EarlyBuffers::giveBack(Buffer buffer) {
  held -= buffer.used;
  idle.push_back(std::move(buffer));
}

Connection::Connection(std::unique_ptr<ByteStream> made, unsigned peer, EarlyBuffers &buffers)
    : stream(std::move(made)), other(peer), buffers(buffers),
      staging(std::max(sizeof(FrameHeader), stream->readAhead())) {
  early.reserve(64);
}

void Connection::start(Outgoing &frame, const FrameHeader &header, const void *data) {
  frame.header = header;
  frame.header.number = sent++;
  frame.header.check = frame.header.ownCheck();
  frame.data = static_cast<const std::byte *>(data);
  frame.written = 0;
  frame.done = false;
  frame.peer = other;
  frame.next = nullptr;
  (head ? tail->next : head) = &frame;
  tail = &frame;
  if (head == &frame)
    write();
}

bool Connection::write() {
  bool moved = false;
  while (head && !closed) {
    const size_t headerBytes = sizeof head->header, whole = headerBytes + head->header.bytes;
    iovec parts[2];
    size_t count = 0;
    if (head->written < headerBytes)
      parts[count++] = {reinterpret_cast<std::byte *>(&head->header) + head->written, headerBytes - head->written};
    const size_t sent = head->written - std::min(head->written, headerBytes);
    if (head->header.bytes > sent)
      parts[count++] = {const_cast<std::byte *>(head->data) + sent, head->header.bytes - sent};
    const ssize_t written = stream->write({parts, count});
    closed = written < 0;
    if (written <= 0)
      return moved;
    moved = true;
    head->written += static_cast<size_t>(written);
    if (head->written < whole)
      continue;
    head->done = true;
    head = head->next;
  }
  return moved;
}

/// Throws if the bytes where a frame must begin are not the header of the next one.
void Connection::checkHeader() {
  if (current.check == current.ownCheck() && current.number == taken++)
    return;
  closed = true; // nothing that follows has a meaning
  throw environmentError(
      fmt::format("what rank {} sends arrives damaged: bytes were lost or changed on the way", other));
}

void Connection::checkSize(const FrameHeader &found) const {
  if (found.bytes == incoming.header.bytes)
    return;
  throw environmentError(fmt::format("{} from rank {} must have {} bytes, found {}", found.name(), other,
                                     incoming.header.bytes, found.bytes));
}

void Connection::expect(const FrameHeader &header, void *data) {
  assert(!incoming.active && "one frame at a time is expected from a rank");
  incoming = {header, static_cast<std::byte *>(data), true};
  auto found = std::find_if(early.begin(), early.end(), [&](const Early &e) { return e.header.sameKey(header); });
  if (found != early.end()) {
    checkSize(found->header);
    if (header.bytes)
      std::memcpy(data, found->buffer.memory.get(), header.bytes);
    buffers.giveBack(std::move(found->buffer));
    early.erase(found);
    incoming.active = false;
  }
}

void Connection::keep(const FrameHeader &header, const void *data) {
  Early made{header, buffers.take(header.bytes)};
  if (header.bytes)
    std::memcpy(made.buffer.memory.get(), data, header.bytes);
  early.push_back(std::move(made));
}

/// Reads bytes and adds their number to `count`; returns false if none are available.
bool Connection::take(std::byte *to, size_t most, size_t &count) {
  const ssize_t found = stream->read(to, most);
  closed = found < 0;
  if (found > 0)
    count += static_cast<size_t>(found);
  return found > 0;
}

/// Reads into the staging area; returns false if no bytes are available.
bool Connection::fill() {
  if (begin == end)
    begin = end = 0;
  if (end == staging.size()) {
    std::memmove(staging.data(), staging.data() + begin, end - begin);
    end -= begin;
    begin = 0;
  }
  return take(staging.data() + end, staging.size() - end, end);
}

/// Finds memory for the current frame; returns false if the frame must wait. If this rank waits for a later frame, the
/// current one must always be buffered; otherwise only if the buffers have room.
bool Connection::place() {
  direct = incoming.active && incoming.header.sameKey(current);
  if (direct) {
    checkSize(current);
    target = incoming.data;
  } else if (incoming.active || buffers.hasRoom(current.bytes)) {
    kept = buffers.takeFor(current.bytes);
    target = kept.memory.get();
  } else {
    parked = true;
    return false;
  }
  parked = false;
  placed = true;
  received = 0;
  return true;
}

/// Receives bytes of the current frame; returns false if none are available.
bool Connection::receive() {
  if (!direct && received == kept.used && received < current.bytes) {
    buffers.grow(kept, std::min(current.bytes, 2 * kept.used));
    target = kept.memory.get();
  }
  const size_t missing = (direct ? current.bytes : kept.used) - received;
  if (begin == end && missing >= staging.size()) // large frames bypass the staging area
    return take(target + received, missing, received);
  if (begin == end && missing && !fill())
    return false;
  if (const size_t bytes = std::min(missing, end - begin)) {
    std::memcpy(target + received, staging.data() + begin, bytes);
    begin += bytes;
    received += bytes;
  }
  return true;
}

void Connection::finish() {
  inFrame = placed = false;
  if (direct) {
    incoming.active = false;
    return;
  }
  if (incoming.active && incoming.header.sameKey(current)) { // requested while it was arriving
    checkSize(current);
    if (current.bytes)
      std::memcpy(incoming.data, kept.memory.get(), current.bytes);
    incoming.active = false;
    buffers.giveBack(std::move(kept));
    return;
  }
  early.push_back({current, std::move(kept)});
}

bool Connection::read() {
  const bool awaited = incoming.active;
  bool moved = false;
  while (!closed && (!awaited || incoming.active)) {
    if (!inFrame) {
      if (end - begin < sizeof current) {
        if (!fill())
          break;
        continue;
      }
      std::memcpy(&current, staging.data() + begin, sizeof current);
      begin += sizeof current;
      checkHeader();
      inFrame = true;
    }
    if (!placed && !place())
      break;
    if (!receive())
      break;
    moved = true;
    if (received == current.bytes)
      finish();
  }
  return moved;
}

void Connection::forget() {
  if ((head && head->written > 0) || (incoming.active && placed && direct))
    closed = true;
  for (; head; head = head->next)
    head->done = true;
  incoming.active = false;
}

} // namespace cleave
