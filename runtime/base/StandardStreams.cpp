// Handles failures of standard output and standard error.
#include "runtime/base/StandardStreams.h"
#include "runtime/base/Error.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace cleave {

static std::atomic<int> lostOnError{0}; // errno of the first failed write

void holdStandardDescriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) // open returns the lowest free descriptor, which is fd
        [[maybe_unused]]
      const int made = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static bool readerLeft(int fd) {
  pollfd stream{fd, POLLOUT, 0};
  return poll(&stream, 1, 0) > 0 && (stream.revents & POLLERR);
}

bool outputReaderLeft() { return readerLeft(STDOUT_FILENO); }

void printOnStandardError(const std::string &text) {
  errno = 0;
  if ((std::fwrite(text.data(), 1, text.size(), stderr) != text.size() || std::fflush(stderr) != 0) && lostOnError == 0)
    lostOnError = errno ? errno : EIO;
}

std::string outputLost(const std::string &reason) {
  return "standard output cannot be written" + (reason.empty() ? "" : ": " + reason);
}

void finishStandardStreams() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int code = errno;
  if ((!flushed || std::ferror(stdout)) && !outputReaderLeft())
    throw environmentError(outputLost(code ? std::strerror(code) : ""));
  if (lostOnError != 0 && !readerLeft(STDERR_FILENO))
    throw environmentError(fmt::format("standard error cannot be written: {}", std::strerror(lostOnError)));
}

} // namespace cleave
