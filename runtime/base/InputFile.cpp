// Opens and reads regular files.
#include "runtime/base/InputFile.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace cleave {

static const char *kindOf(mode_t mode) {
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

InputFile::InputFile(std::string name, Status missing) : path(std::move(name)) {
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // a pipe without a writer would block
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    const int code = errno;
    if (fd >= 0)
      close(fd);
    throw FileError(missing, fmt::format("{}: cannot be opened: {}", path, std::strerror(code)), code);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    throw FileError(missing, fmt::format("{}: a regular file expected, found {}", path, kindOf(info.st_mode)), EINVAL);
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

FileState InputFile::state() const {
  struct stat info {};
  if (fstat(fd, &info) != 0)
    throw FileError(Status::Environment, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)), errno);
  const auto nanoseconds = [](const timespec &time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; };
  return {info.st_ino, static_cast<uint64_t>(info.st_size), nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

int InputFile::release() { return std::exchange(fd, -1); }

void InputFile::read(void *to, size_t count, uint64_t offset) const {
  char *at = static_cast<char *>(to);
  while (count > 0) {
    const ssize_t got = pread(fd, at, std::min<size_t>(count, 1 << 30), off_t(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      const int code = got < 0 ? errno : 0;
      throw FileError(Status::Environment,
                      fmt::format("{}: {} more bytes expected at offset {}: {}", path, count, offset,
                                  got < 0 ? std::strerror(code) : "the file ends"),
                      code);
    }
    at += got;
    offset += uint64_t(got);
    count -= size_t(got);
  }
}

void waitToRetry(const FileError &error, int tried) {
  constexpr std::array lasting{ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG, EINVAL};
  constexpr std::array milliseconds{100, 400, 1500};
  if (std::ranges::find(lasting, error.code) != lasting.end())
    throw error;
  if (static_cast<size_t>(tried) > milliseconds.size())
    throw FileError(error.status, fmt::format("{}; tried {} times", error.what(), tried), error.code);
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds[static_cast<size_t>(tried) - 1]));
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
