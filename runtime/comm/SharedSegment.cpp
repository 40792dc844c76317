// Makes and opens segments.
#include "runtime/comm/SharedSegment.h"

#include "runtime/base/RandomBits.h"

#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

using Token = std::array<uint64_t, 2>;

static std::string segmentName(const Token &token) { return fmt::format("cleave-{:016x}{:016x}", token[0], token[1]); }

/// Whether a file may have this size; the system would send a signal otherwise.
static bool isAllowed(size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

bool SharedSegment::map() {
  void *found = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  memory = found == MAP_FAILED ? nullptr : static_cast<std::byte *>(found);
  return memory;
}

SharedSegment SharedSegment::make(size_t bytes) {
  const Token token{randomBits(), randomBits()};
  SharedSegment made;
  made.mapped = bytes + 64;
  if (!isAllowed(made.mapped))
    return {};
  made.descriptor = ::memfd_create(segmentName(token).c_str(), MFD_CLOEXEC);
  if (made.descriptor < 0 || ::posix_fallocate(made.descriptor, 0, static_cast<off_t>(made.mapped)) != 0 || !made.map())
    return {};
  std::memcpy(made.memory, &token, sizeof token);
  return made;
}

SharedSegment SharedSegment::open(const Address &address) {
  if (!address.bytes)
    return {};
  // On another host the same numbers may mean anything: look at the name before opening, which could have effects.
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  const std::string expected = fmt::format("/memfd:{} (deleted)", segmentName(address.token));
  char name[128];
  const ssize_t length = ::readlink(path.c_str(), name, sizeof name);
  if (length < 0 || std::string_view(name, static_cast<size_t>(length)) != expected)
    return {};
  SharedSegment found;
  found.mapped = address.bytes;
  found.descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (found.descriptor < 0 || ::fstat(found.descriptor, &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != address.bytes || !found.map() ||
      std::memcmp(found.memory, &address.token, sizeof address.token) != 0)
    return {};
  return found;
}

SharedSegment::~SharedSegment() {
  close();
  if (memory)
    ::munmap(memory, mapped);
}

SharedSegment::Address SharedSegment::address() const {
  Address address;
  if (!memory)
    return address;
  std::memcpy(&address.token, memory, sizeof address.token);
  address.bytes = mapped;
  address.process = ::getpid();
  address.descriptor = descriptor;
  return address;
}

void SharedSegment::close() {
  if (descriptor >= 0)
    ::close(std::exchange(descriptor, -1));
}

} // namespace cleave
