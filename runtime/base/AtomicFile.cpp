// Files that are whole or absent.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cleave {

AtomicFile::AtomicFile(std::string name) : path(std::move(name)) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw userError(fmt::format("{}: exists and is not a regular file", path));
  temporary = fmt::format("{}.tmp{}", path, getpid());
  fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    fail(errno);
}

AtomicFile::~AtomicFile() {
  if (fd >= 0)
    close(fd);
  if (!temporary.empty())
    unlink(temporary.c_str());
}

void AtomicFile::fail(int code) const {
  const std::string text = fmt::format("{}: cannot be written: {}", path, std::strerror(code));
  const bool environment = code == ENOSPC || code == EDQUOT || code == EIO || code == EFBIG;
  throw environment ? environmentError(text) : userError(text);
}

void AtomicFile::write(const void *data, size_t bytes) {
  const char *at = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd, at, std::min<size_t>(bytes, 1 << 30));
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      fail(errno);
    at += done;
    bytes -= size_t(done);
  }
}

void AtomicFile::commit() {
  if (fsync(fd) != 0 || close(std::exchange(fd, -1)) != 0 || rename(temporary.c_str(), path.c_str()) != 0)
    fail(errno);
  temporary.clear();
}

void syncFolder(const std::string &folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return;
  fsync(fd);
  close(fd);
}

} // namespace cleave
