// Files of a moment.
#include "runtime/base/ScratchFile.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace cleave {

std::vector<std::string> scratchFolders() {
  std::vector<std::string> folders;
  for (const char *folder : {static_cast<const char *>(std::getenv("TMPDIR")), "/dev/shm", "/tmp"})
    if (folder && *folder && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  return folders;
}

/// The reason of a failed call.
static std::string reason() {
  const int code = errno;
  return fmt::format("{}{}", std::strerror(code), code == EFBIG ? " for the limit of file sizes (ulimit -f)" : "");
}

ScratchFile::ScratchFile(const std::string &what, std::span<const uint8_t> bytes, const Use &use) {
  std::string problems;
  std::vector<std::string> places = scratchFolders();
  places.insert(places.begin(), "memory");
  for (size_t i = 0; i < places.size(); ++i) {
    std::string problem = i == 0 ? inMemory(bytes) : inFolder(places[i], bytes);
    if (problem.empty() && use)
      problem = use(place);
    if (problem.empty())
      return;
    problems += fmt::format("{}{}: {}", i == 0 ? "" : "; ", places[i], problem);
    remove();
  }
  throw environmentError(fmt::format("{} ({} bytes): {}", what, bytes.size(), problems));
}

ScratchFile::ScratchFile(ScratchFile &&other) noexcept
    : place(std::move(other.place)), named(std::exchange(other.named, false)), fd(std::exchange(other.fd, -1)) {}

ScratchFile::~ScratchFile() { remove(); }

void ScratchFile::remove() {
  if (fd >= 0)
    ::close(std::exchange(fd, -1));
  if (std::exchange(named, false))
    ::unlink(place.c_str());
}

std::string ScratchFile::write(std::span<const uint8_t> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote < 0)
      return reason();
    done += static_cast<size_t>(wrote);
  }
  return "";
}

std::string ScratchFile::inMemory(std::span<const uint8_t> bytes) {
  fd = ::memfd_create("cleave", MFD_CLOEXEC);
  if (fd < 0)
    return reason();
  place = fmt::format("/proc/self/fd/{}", fd);
  return ::access(place.c_str(), R_OK) == 0 ? write(bytes) : "/proc is missing";
}

std::string ScratchFile::inFolder(const std::string &folder, std::span<const uint8_t> bytes) {
  place = folder + "/cleave-XXXXXX";
  fd = ::mkostemp(place.data(), O_CLOEXEC);
  if (fd < 0)
    return reason();
  named = true;
  return write(bytes);
}

} // namespace cleave
