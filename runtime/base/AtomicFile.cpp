// Writes files atomically.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/RandomBits.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace cleave {
namespace fs = std::filesystem;

AtomicFile::AtomicFile(std::string name, const std::string &owner) : path(std::move(name)) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode))
      throw userError(fmt::format("{}: exists and is not a regular file", path));
  } else if (errno != ENOENT) // unknown what a rename would replace
    fail(errno);
  const size_t begin = path.rfind('/') + 1; // npos + 1 is 0
  for (int attempt = 0; fd < 0 && attempt < 8; ++attempt) {
    temporary = fmt::format("{}.{}{}{}.tmp-{:016x}", path.substr(0, begin), path.substr(begin),
                            owner.empty() ? "" : "-", owner, randomBits());
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST)
      break;
  }
  if (fd < 0) {
    temporary.clear(); // not created by this object
    fail(errno);
  }
  struct stat mine {};
  if (fstat(fd, &mine) != 0) {
    const int code = errno;
    close(fd);
    unlink(temporary.c_str());
    fail(code);
  }
  device = mine.st_dev;
  inode = mine.st_ino;
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
    const ssize_t done = pwrite(fd, at, std::min<size_t>(bytes, 1 << 30), offset); // may be repeated on its way
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      fail(errno);
    at += done;
    offset += done;
    bytes -= size_t(done);
  }
}

void AtomicFile::finish(Lasting lasting) {
  if (fd >= 0 && ((lasting == Lasting::Yes && fsync(fd) != 0) || close(std::exchange(fd, -1)) != 0))
    fail(errno);
}

bool AtomicFile::hasItsName() const {
  const int found = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); // asks a network's server
  if (found < 0)
    return false;
  struct stat there {};
  const bool same = fstat(found, &there) == 0 && there.st_dev == device && there.st_ino == inode;
  close(found);
  return same;
}

void AtomicFile::commit(Lasting lasting) {
  finish(lasting);
  if (rename(temporary.c_str(), path.c_str()) != 0)
    if (const int code = errno; !hasItsName())
      fail(code);
  temporary.clear();
}

void syncFolder(const std::string &folder) {
  const auto fail = [&](int code) {
    throw environmentError(fmt::format("{}: cannot be written to disk: {}", folder, std::strerror(code)));
  };
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && (errno == EACCES || errno == EPERM)) // a folder that may be written but not listed
    return;
  if (fd < 0)
    fail(errno);
  const int code = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (code != 0 && code != EINVAL && code != ENOTSUP && code != ENOSYS && code != EROFS)
    fail(code);
}

void makeFolders(const std::string &folder, const std::string &what) {
  std::error_code error;
  std::vector<fs::path> parents; // of newly created folders
  for (fs::path path = fs::absolute(folder, error).lexically_normal(); !error && !fs::exists(path, error);
       path = path.parent_path()) {
    parents.push_back(path.parent_path());
    if (path == path.parent_path())
      break;
  }
  if (!error)
    fs::create_directories(folder, error);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw userError(fmt::format("{} {}: cannot be made: {}", what, folder,
                                error ? error.message() : "it exists and is not a folder"));
  for (const fs::path &parent : parents)
    syncFolder(parent.string());
}

} // namespace cleave
