// Reads files of the cache, which may lie where others can write.
#include "runtime/base/CacheFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave {

static std::string problemOf(const struct stat &info, uint64_t most) {
  if (!S_ISREG(info.st_mode))
    return "is not a regular file";
  if (info.st_uid != ::geteuid())
    return fmt::format("belongs to user {}, not to {}", info.st_uid, ::geteuid());
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("can be written by others (mode {:o})", info.st_mode & 07777);
  return uint64_t(info.st_size) > most ? fmt::format("has {} bytes, more than {}", info.st_size, most) : "";
}

OwnFile readOwnFile(const std::string &path, uint64_t most) {
  OwnFile file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      file.problem = errno == ELOOP ? "is a symbolic link" : std::strerror(errno);
    return file;
  }
  struct stat info {};
  file.problem = ::fstat(fd, &info) == 0 ? problemOf(info, most) : std::strerror(errno);
  if (file.problem.empty()) {
    file.written = info.st_mtim.tv_sec;
    file.content.resize(size_t(info.st_size));
    size_t done = 0;
    for (ssize_t got;
         done < file.content.size() && (got = ::read(fd, file.content.data() + done, file.content.size() - done)) > 0;)
      done += size_t(got);
    file.content.resize(done);
  }
  ::close(fd);
  return file;
}

} // namespace cleave
