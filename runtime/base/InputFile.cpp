// Opens and reads regular files.
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cleave {

static const char *kindOf(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

InputFile::InputFile(std::string name, Status missing) : path(std::move(name)) {
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // a pipe without a writer would block
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    const int code = errno;
    if (fd >= 0)
      close(fd);
    throw Error(missing, fmt::format("{}: cannot be opened: {}", path, std::strerror(code)));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    throw Error(missing, fmt::format("{}: a regular file expected, found {}", path, kindOf(info.st_mode)));
  }
  bytes = uint64_t(info.st_size);
  permissions = info.st_mode & 07777;
  user = info.st_uid;
}

InputFile::~InputFile() {
  if (fd >= 0)
    close(fd);
}

InputFile::InputFile(InputFile &&other) noexcept
    : path(std::move(other.path)), fd(other.release()), bytes(other.bytes), permissions(other.permissions),
      user(other.user) {}

int InputFile::release() { return std::exchange(fd, -1); }

void InputFile::read(void *to, size_t count, uint64_t offset) const {
  char *at = static_cast<char *>(to);
  while (count > 0) {
    const ssize_t got = pread(fd, at, std::min<size_t>(count, 1 << 30), off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      throw environmentError(fmt::format("{}: {} more bytes expected at offset {}: {}", path, count, offset,
                                         got < 0 ? std::strerror(errno) : "the file ends"));
    at += got;
    offset += uint64_t(got);
    count -= size_t(got);
  }
}

std::string readTextFile(const std::string &path, Status missing, uint64_t most) {
  InputFile file(path, missing);
  if (file.size() > most)
    throw Error(missing, fmt::format("{}: at most {} bytes of text expected, found {}", path, most, file.size()));
  return withMemoryFor(path, file.size(), [&] {
    std::string text(size_t(file.size()), '\0');
    file.read(text.data(), text.size(), 0);
    return text;
  });
}

} // namespace cleave
