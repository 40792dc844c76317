// Reads and writes that do not wait.
#include "runtime/comm/socket/SocketStream.h"

#include <cerrno>

namespace cleave {

/// Repeats a call that a signal interrupts. No bytes now are 0, a failure is -1.
template <typename Call> static ssize_t transfer(Call call) {
  for (;;) {
    const ssize_t bytes = call();
    if (bytes >= 0)
      return bytes;
    if (errno != EINTR)
      return errno == EAGAIN ? 0 : -1;
  }
}

ssize_t SocketStream::write(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return transfer([&] { return ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

ssize_t SocketStream::read(std::byte *to, size_t most) {
  return transfer([&] {
    const ssize_t bytes = ::recv(socket.fd(), to, most, MSG_DONTWAIT);
    if (bytes > 0)
      return bytes;
    if (bytes == 0) // the other side has closed it
      errno = ECONNRESET;
    return ssize_t{-1};
  });
}

} // namespace cleave
