// A library for LD_PRELOAD that lets calls on files fail as disks and network file systems do, and records them. It
// also limits the threads that a process may start.
//
// CLEAVE_FAULT_THREADS=N    a process can start no more than N threads, whether or not they have ended
// CLEAVE_FAULTS=FOLDER      only calls on names below this absolute path, and on files opened there, count
// CLEAVE_FAULT_LOG=FILE     appends a line for each call that counts: rank, number, call, result, names, data as hex
// CLEAVE_FAULT_AT=N         the call to disturb, counted from 1 in each process
// CLEAVE_FAULT_RANK=R       only in the process with RANK=R (default: in all)
// CLEAVE_FAULT_KIND=KIND    fail: not done and reported as failed; done: done and reported as failed; twice: done
// twice,
//                           reported as the second time (a repeated request to a server); doubt: as done, and the next
//                           call fails, so the program cannot ask at once; broken: this one and all that follow on
//                           the same file fail; kill: the process ends before it
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace {

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

const std::string &folder() {
  static const std::string value = environment("CLEAVE_FAULTS");
  return value;
}

template <class Function> Function real(const char *name) { return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name)); }

std::atomic<int> calls{0};
std::mutex mutex;
std::array<std::string, 4096> opened; ///< names of open files that count

bool counts(const char *name) {
  return !folder().empty() && name && std::strncmp(name, folder().c_str(), folder().size()) == 0;
}

std::string nameOf(int fd) {
  std::lock_guard lock(mutex);
  return fd >= 0 && size_t(fd) < opened.size() ? opened[size_t(fd)] : "";
}

void setName(int fd, const std::string &name) {
  std::lock_guard lock(mutex);
  if (fd >= 0 && size_t(fd) < opened.size())
    opened[size_t(fd)] = name;
}

void record(int number, const char *call, long result, const std::string &names, const void *data, size_t bytes) {
  static const std::string file = environment("CLEAVE_FAULT_LOG");
  if (file.empty())
    return;
  std::string rank = environment("RANK");
  std::string line = (rank.empty() ? "0" : rank) + " " + std::to_string(number) + " " + call + " " +
                     std::to_string(result) + " " + names + " ";
  for (size_t i = 0; i < bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char *>(data)[i]);
    line += digits;
  }
  line += '\n';
  static const auto open = real<int (*)(const char *, int, ...)>("open");
  static const auto write = real<ssize_t (*)(int, const void *, size_t)>("write");
  static const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (write(fd, line.data(), line.size()) < 0)
    std::abort();
}

/// Does a call that counts, disturbed if it is the one.
template <class Do>
auto disturb(const char *call, const std::string &names, int code, Do work, const void *data = nullptr,
             size_t bytes = 0) {
  static const std::string at = environment("CLEAVE_FAULT_AT"), kind = environment("CLEAVE_FAULT_KIND"),
                           rank = environment("CLEAVE_FAULT_RANK");
  const int number = ++calls;
  const bool mine = !at.empty() && (rank.empty() || rank == environment("RANK"));
  const bool now = mine && number == std::atoi(at.c_str());
  static std::string broken; // the names of the call that was disturbed
  bool stays = false;
  if (mine && kind == "broken") {
    std::lock_guard lock(mutex);
    if (now)
      broken = names;
    stays = !broken.empty() && names == broken;
  }
  const bool fails =
      stays || (now && kind == "fail") || (mine && kind == "doubt" && number == std::atoi(at.c_str()) + 1);
  if (now && kind == "kill")
    ::kill(getpid(), SIGKILL);
  using Result = decltype(work());
  Result result = Result(-1);
  if (!fails)
    result = work();
  if (now && kind == "twice")
    result = work();
  int saved = errno;
  if (fails || (now && (kind == "done" || kind == "doubt"))) {
    result = Result(-1);
    saved = code;
  }
  record(number, call, long(result), names, data, bytes);
  errno = saved;
  return result;
}

int openAs(const char *function, const char *name, int flags, mode_t mode) {
  const auto call = real<int (*)(const char *, int, ...)>(function);
  if (!counts(name))
    return call(name, flags, mode);
  const int fd = disturb(flags & O_CREAT ? "create" : "open", name, EIO, [&] { return call(name, flags, mode); });
  setName(fd, name);
  return fd;
}

} // namespace

extern "C" {

int open(const char *name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
  va_end(list);
  return openAs("open", name, flags, mode);
}

int open64(const char *name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
  va_end(list);
  return openAs("open64", name, flags, mode);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
  static const auto call = real<ssize_t (*)(int, const void *, size_t, off_t)>("pwrite");
  const std::string name = nameOf(fd);
  return name.empty() ? call(fd, data, bytes, offset)
                      : disturb("write", name, ENOSPC, [&] { return call(fd, data, bytes, offset); }, data, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  static const auto call = real<ssize_t (*)(int, void *, size_t, off_t)>("pread");
  const std::string name = nameOf(fd);
  return name.empty() ? call(fd, to, bytes, offset)
                      : disturb("read", name, EIO, [&] { return call(fd, to, bytes, offset); });
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  static const auto call = real<decltype(&pthread_create)>("pthread_create");
  static const std::string most = environment("CLEAVE_FAULT_THREADS");
  static std::atomic<int> started{0};
  return !most.empty() && started++ >= std::atoi(most.c_str()) ? EAGAIN : call(thread, attributes, start, argument);
}

int fsync(int fd) {
  static const auto call = real<int (*)(int)>("fsync");
  const std::string name = nameOf(fd);
  return name.empty() ? call(fd) : disturb("fsync", name, EIO, [&] { return call(fd); });
}

/// Not done twice: its number may be another file's by then.
int close(int fd) {
  static const auto call = real<int (*)(int)>("close");
  const std::string name = nameOf(fd);
  if (name.empty())
    return call(fd);
  setName(fd, "");
  bool closed = false;
  return disturb("close", name, EIO, [&] { return std::exchange(closed, true) ? 0 : call(fd); });
}

int flock(int fd, int how) {
  static const auto call = real<int (*)(int, int)>("flock");
  const std::string name = nameOf(fd);
  return name.empty() ? call(fd, how) : disturb("flock", name, ENOLCK, [&] { return call(fd, how); });
}

int rename(const char *from, const char *to) {
  static const auto call = real<int (*)(const char *, const char *)>("rename");
  if (!counts(from) && !counts(to))
    return call(from, to);
  return disturb("rename", std::string(from) + " " + to, EIO, [&] { return call(from, to); });
}

int unlink(const char *name) {
  static const auto call = real<int (*)(const char *)>("unlink");
  return counts(name) ? disturb("unlink", name, EIO, [&] { return call(name); }) : call(name);
}

int utimensat(int at, const char *name, const timespec times[2], int flags) {
  static const auto call = real<int (*)(int, const char *, const timespec[2], int)>("utimensat");
  return counts(name) ? disturb("utimensat", name, EIO, [&] { return call(at, name, times, flags); })
                      : call(at, name, times, flags);
}
}
