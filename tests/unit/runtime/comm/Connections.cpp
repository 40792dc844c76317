// Frames in a stream of bytes that is cut, damaged, or announces what never comes.
#include "runtime/base/Error.h"
#include "runtime/comm/Connection.h"

#include <catch2/catch.hpp>

#include <cstring>

using namespace cleave;

namespace {

/// What one side writes, for the other side to read.
class Memory final : public ByteStream {
public:
  explicit Memory(std::string &bytes) : bytes(bytes) {}
  ssize_t write(std::span<iovec> parts) override {
    size_t count = 0;
    for (const iovec &part : parts) {
      bytes.append(static_cast<const char *>(part.iov_base), part.iov_len);
      count += part.iov_len;
    }
    return static_cast<ssize_t>(count);
  }
  ssize_t read(std::byte *to, size_t most) override {
    const size_t count = std::min(most, bytes.size());
    std::memcpy(to, bytes.data(), count);
    bytes.erase(0, count);
    return static_cast<ssize_t>(count);
  }
  size_t readAhead() const override { return 64; }

private:
  std::string &bytes;
};

/// The bytes of these messages, tagged 0, 1, ...
std::string streamOf(const std::vector<std::string> &messages) {
  std::string bytes;
  EarlyBuffers buffers;
  Connection connection(std::make_unique<Memory>(bytes), 1, buffers);
  std::vector<Outgoing> frames(messages.size());
  for (uint32_t i = 0; i < messages.size(); ++i)
    connection.start(frames[i], {0, i, -1, messages[i].size()}, messages[i].data());
  return bytes;
}

enum class End { All, Waits, Damaged };

/// What becomes of one who expects these messages in this order.
End received(std::string bytes, const std::vector<std::string> &messages, const std::vector<uint32_t> &order) {
  EarlyBuffers buffers;
  Connection connection(std::make_unique<Memory>(bytes), 1, buffers);
  try {
    for (const uint32_t tag : order) {
      std::string found(messages[tag].size(), '\0');
      connection.expect({0, tag, -1, found.size()}, found.data());
      while (connection.awaits() && connection.read()) {
      }
      if (connection.awaits())
        return End::Waits;
    }
  } catch (const Error &error) {
    return error.status == Status::Environment ? End::Damaged : End::All;
  }
  return End::All;
}

} // namespace

TEST_CASE("connections: a stream that has lost bytes is noticed where the next frame must begin") {
  const std::vector<std::string> messages{"first", "", std::string(200, 'x'), "last"};
  const std::string bytes = streamOf(messages);
  for (const std::vector<uint32_t> &order : {std::vector<uint32_t>{0, 1, 2, 3}, {3, 0, 1, 2}, {2, 3, 1, 0}}) {
    CHECK(received(bytes, messages, order) == End::All);
    for (size_t at = 0; at < bytes.size(); ++at)
      for (size_t lost : {1, 8, 40}) {
        std::string left = bytes;
        left.erase(at, lost);
        INFO(lost << " bytes lost at " << at);
        CHECK(received(left, messages, order) != End::All);
      }
  }
  for (size_t at = 0; at < sizeof(FrameHeader); ++at) { // a header that is changed
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK(received(changed, messages, {0, 1, 2, 3}) == End::Damaged);
  }
  const std::string second = streamOf({messages[0], messages[0]}).substr(sizeof(FrameHeader) + messages[0].size());
  CHECK(received(second, messages, {0}) == End::Damaged); // a whole frame is missing
}

TEST_CASE("connections: a frame takes memory as it arrives, not by the size that it announces") {
  for (const uint64_t announced : {uint64_t{1} << 50, ~uint64_t{0}}) {
    FrameHeader header{0, 7, -1, announced};
    header.check = header.ownCheck();
    std::string bytes(reinterpret_cast<const char *>(&header), sizeof header);
    bytes += std::string(3 << 20, 'x');
    CHECK(received(bytes, {"awaited"}, {0}) == End::Waits);
  }
}

TEST_CASE("connections: early frames of any size arrive whole") {
  for (size_t size : {0, 1, 1 << 20, (1 << 20) + 1, 5'000'001}) {
    std::string early(size, '\0');
    for (size_t i = 0; i < size; ++i)
      early[i] = static_cast<char>(i * 2654435761u >> 24);
    const std::vector<std::string> messages{early, "awaited", early};
    std::string bytes = streamOf(messages);
    EarlyBuffers buffers;
    Connection connection(std::make_unique<Memory>(bytes), 1, buffers);
    for (const uint32_t tag : {1, 2, 0}) {
      std::string found(messages[tag].size(), '\0');
      connection.expect({0, tag, -1, found.size()}, found.data());
      while (connection.awaits() && connection.read()) {
      }
      CHECK(found == messages[tag]);
    }
  }
}
