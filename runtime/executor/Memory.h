// Memory of a rank: mapped once, zeroed, 64-byte aligned (2 MiB for large pieces, with huge pages where there are any).
#pragma once
#include <cstddef>

namespace cleave {

class Memory {
public:
  Memory() = default;
  /// Environment error when there is not enough; `what` is for its text.
  Memory(size_t bytes, const char *what);
  Memory(Memory &&other) noexcept;
  Memory &operator=(Memory &&other) noexcept;
  ~Memory();
  std::byte *data() const { return start; }
  size_t size() const { return bytes; }

private:
  void *mapped = nullptr;
  size_t mappedBytes = 0;
  std::byte *start = nullptr;
  size_t bytes = 0;
};

} // namespace cleave
