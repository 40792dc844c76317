// A memory segment that processes of one host share. It has no name in any file system: the others open it through the
// descriptor of the process that made it, so nothing is left behind however a process ends. They know that it is the
// right one, and that they are on its host, by a random token in it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cleave {

class SharedSegment {
public:
  /// Where another process finds a segment. Sent as bytes.
  struct Address {
    std::array<uint64_t, 2> token{};
    uint64_t bytes = 0; ///< 0: there is none
    int32_t process = 0, descriptor = -1;
  };

  SharedSegment() = default;
  /// Makes a segment of zeros, all of whose memory is reserved: using it cannot fail later. Empty if the system
  /// refuses.
  static SharedSegment make(size_t bytes);
  /// Opens another process's segment. Empty if this process cannot reach it.
  static SharedSegment open(const Address &address);
  SharedSegment(SharedSegment &&other) noexcept { swap(other); }
  SharedSegment &operator=(SharedSegment &&other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedSegment();

  explicit operator bool() const { return memory; }
  /// The address for others; valid until `close`.
  Address address() const;
  /// Call when the others have opened the segment. The memory remains.
  void close();
  /// The memory after the token; aligned to cache lines.
  std::byte *data() const { return memory + 64; }

private:
  bool map();
  void swap(SharedSegment &other) {
    std::swap(memory, other.memory);
    std::swap(mapped, other.mapped);
    std::swap(descriptor, other.descriptor);
  }

  std::byte *memory = nullptr;
  size_t mapped = 0;
  int descriptor = -1;
};

} // namespace cleave
