// Memory of a rank: mapped once, zeroed, 64-byte aligned (large sizes 2 MiB, with huge pages if available).
#pragma once
#include <cstddef>

namespace cleave {

/// Advice for messages: what takes less memory of a rank.
inline constexpr const char *lessMemory =
    "a smaller --batch, more --microbatches, --recompute full or more ranks would need less";

class Memory {
public:
  Memory() = default;
  /// Throws an environment error if there is not enough memory; `what` names it in the message.
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
