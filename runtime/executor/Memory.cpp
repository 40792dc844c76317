// Maps memory.
#include "runtime/executor/Memory.h"

#include "runtime/base/Error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace cleave {

static constexpr size_t hugePage = size_t{2} << 20;

Memory::Memory(size_t size, const char *what) : bytes(size) {
  if (size == 0)
    return;
  bool large = size >= hugePage;
  mappedBytes = large ? size + hugePage : size;
  void *memory = mappedBytes < size
                     ? MAP_FAILED
                     : ::mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw environmentError(fmt::format("{} needs {:.2f} GiB of memory: {}; {}", what,
                                       static_cast<double>(size) / (1 << 30), std::strerror(errno), lessMemory));
  mapped = memory;
  auto address = reinterpret_cast<uintptr_t>(memory);
  if (large)
    address = (address + hugePage - 1) / hugePage * hugePage;
  start = reinterpret_cast<std::byte *>(address);
  if (large)
    ::madvise(start, size, MADV_HUGEPAGE); // only a hint
}

Memory::Memory(Memory &&other) noexcept { *this = std::move(other); }

Memory &Memory::operator=(Memory &&other) noexcept {
  std::swap(mapped, other.mapped);
  std::swap(mappedBytes, other.mappedBytes);
  std::swap(start, other.start);
  std::swap(bytes, other.bytes);
  return *this;
}

Memory::~Memory() {
  if (mapped)
    ::munmap(mapped, mappedBytes);
}

} // namespace cleave
