// TCP sockets.
#include "runtime/comm/socket/Socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace cleave {

Clock::time_point deadlineIn(double seconds) {
  constexpr double most = 30.0 * 365 * 24 * 3600;
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(seconds, 0.0, most)));
}

int millisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3600'000));
}

bool Pause::wait() {
  pollfd ended{alarm, POLLIN, 0};
  if (Clock::now() >= deadline || ::poll(&ended, 1, std::min(milliseconds, millisecondsUntil(deadline))) > 0)
    return false;
  milliseconds = std::min(2 * milliseconds, 500);
  return true;
}

void Socket::close() {
  if (descriptor >= 0)
    ::close(descriptor);
  descriptor = -1;
}

Endpoint::Endpoint(const sockaddr *address, socklen_t bytes) : length(bytes) {
  std::memcpy(&storage, address, bytes);
  const auto *six = reinterpret_cast<const sockaddr_in6 *>(&storage);
  if (storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
    std::array<uint8_t, 16> raw;
    std::memcpy(raw.data(), &six->sin6_addr, raw.size());
    *this = Endpoint(raw, ntohs(six->sin6_port));
  }
}

Endpoint::Endpoint(const std::array<uint8_t, 16> &address, uint16_t port) {
  in6_addr raw;
  std::memcpy(&raw, address.data(), sizeof raw);
  if (IN6_IS_ADDR_V4MAPPED(&raw)) {
    auto *four = reinterpret_cast<sockaddr_in *>(&storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    std::memcpy(&four->sin_addr, address.data() + 12, 4);
    length = sizeof *four;
    return;
  }
  auto *six = reinterpret_cast<sockaddr_in6 *>(&storage);
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  six->sin6_addr = raw;
  length = sizeof *six;
}

static Endpoint endpointOf(const Socket &socket, decltype(::getpeername) *ask) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (ask(socket.fd(), reinterpret_cast<sockaddr *>(&storage), &bytes) != 0)
    return {};
  return {reinterpret_cast<sockaddr *>(&storage), bytes};
}

Endpoint Endpoint::ofPeer(const Socket &socket) { return endpointOf(socket, ::getpeername); }
Endpoint Endpoint::ofSelf(const Socket &socket) { return endpointOf(socket, ::getsockname); }

std::array<uint8_t, 16> Endpoint::address() const {
  std::array<uint8_t, 16> raw{};
  if (storage.ss_family == AF_INET6)
    std::memcpy(raw.data(), &reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr, raw.size());
  else if (storage.ss_family == AF_INET) {
    raw[10] = raw[11] = 0xff;
    std::memcpy(raw.data() + 12, &reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr, 4);
  }
  return raw;
}

uint16_t Endpoint::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_port
                                             : reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

Endpoint Endpoint::withPort(uint16_t port) const {
  Endpoint other = *this; // keeps the scope id of a link-local address
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6 *>(&other.storage)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in *>(&other.storage)->sin_port = htons(port);
  return other;
}

bool Endpoint::isLoopback() const {
  if (storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr);
  return address()[12] == 127;
}

bool Endpoint::isAny() const {
  if (storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr);
  return reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr.s_addr == htonl(INADDR_ANY);
}

std::string Endpoint::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(&storage)->sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, port());
}

static Socket streamSocket(int family) {
  Socket made(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made) {
    int on = 1; // send small messages immediately
    ::setsockopt(made.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return made;
}

Socket listenAt(const Endpoint &place) {
  Socket made = streamSocket(place.get()->sa_family);
  int on = 1;
  if (!made || ::setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(made.fd(), place.get(), place.bytes()) != 0 || ::listen(made.fd(), SOMAXCONN) != 0)
    return Socket();
  return made;
}

void raiseDescriptorLimit(unsigned ranks) {
  rlimit limit{};
  const rlim_t needed = rlim_t{2} * ranks + 256; // rank 0 has two per rank
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Socket listenOn(uint16_t port) {
  for (int family : {AF_INET6, AF_INET}) { // one socket for both if the host has IPv6
    Socket made = streamSocket(family);
    if (!made)
      continue;
    int on = 1, off = 0;
    ::setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six{};
    sockaddr_in four{};
    const sockaddr *address = reinterpret_cast<sockaddr *>(&four);
    socklen_t bytes = sizeof four;
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (family == AF_INET6) {
      ::setsockopt(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(port);
      address = reinterpret_cast<sockaddr *>(&six);
      bytes = sizeof six;
    }
    if (::bind(made.fd(), address, bytes) == 0 && ::listen(made.fd(), SOMAXCONN) == 0)
      return made;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      return Socket();
  }
  return Socket();
}

Socket acceptFrom(const Socket &listener) {
  Socket made(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (made) {
    int on = 1;
    ::setsockopt(made.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return made;
}

/// Waits until the socket is ready for `events`.
static Transfer waitFor(const Socket &socket, short events, Clock::time_point deadline, int alarm) {
  for (;;) {
    pollfd waits[2] = {{socket.fd(), events, 0}, {alarm, POLLIN, 0}};
    const int left = millisecondsUntil(deadline), ready = ::poll(waits, 2, left);
    if (ready > 0 && waits[1].revents)
      return Transfer::Alarmed;
    if (ready > 0)
      return Transfer::Done;
    if (ready == 0 && Clock::now() >= deadline)
      return Transfer::TimedOut;
  }
}

Socket connectTo(const Endpoint &to, Clock::time_point deadline, int alarm) {
  Socket made = streamSocket(to.get()->sa_family);
  if (!made)
    return made;
  if (::connect(made.fd(), to.get(), to.bytes()) != 0) {
    if (errno != EINPROGRESS)
      return Socket();
    switch (waitFor(made, POLLOUT, deadline, alarm)) {
    case Transfer::Done:
      break;
    case Transfer::Alarmed:
      errno = ECANCELED;
      return Socket();
    default:
      errno = ETIMEDOUT;
      return Socket();
    }
    int code = 0;
    socklen_t bytes = sizeof code;
    ::getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &code, &bytes);
    if (code) {
      errno = code;
      return Socket();
    }
  }
  if (Endpoint::ofSelf(made) == Endpoint::ofPeer(made)) { // TCP can connect a socket to itself
    errno = ECONNREFUSED;
    return Socket();
  }
  return made;
}

Socket connectPatiently(std::span<const Endpoint> places, Clock::time_point deadline, int alarm, std::string &problem) {
  for (Pause pause(deadline, alarm);;) {
    for (const Endpoint &place : places) {
      Socket made = connectTo(place, std::min(deadline, deadlineIn(20)), alarm);
      if (made || errno == ECANCELED)
        return made;
      problem = std::strerror(errno);
    }
    if (!pause.wait())
      return Socket();
  }
}

std::vector<Endpoint> resolve(const std::string &host, uint16_t port, std::string &problem) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::vector<Endpoint> all;
  if (code != 0) {
    problem = ::gai_strerror(code);
    return all;
  }
  for (const addrinfo *at = found; at; at = at->ai_next)
    all.emplace_back(at->ai_addr, at->ai_addrlen);
  ::freeaddrinfo(found);
  return all;
}

Transfer sendAll(const Socket &socket, const void *data, size_t bytes, Clock::time_point deadline, int alarm) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t sent =
        ::send(socket.fd(), static_cast<const std::byte *>(data) + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      done += static_cast<size_t>(sent);
    else if (errno == EAGAIN || errno == EINTR) {
      if (Transfer waited = waitFor(socket, POLLOUT, deadline, alarm); waited != Transfer::Done)
        return waited;
    } else
      return Transfer::Closed;
  }
  return Transfer::Done;
}

Transfer receiveAll(const Socket &socket, void *data, size_t bytes, Clock::time_point deadline, int alarm,
                    size_t *got) {
  size_t unused = 0, &done = got ? *got : unused;
  for (done = 0; done < bytes;) {
    const ssize_t found = ::recv(socket.fd(), static_cast<std::byte *>(data) + done, bytes - done, MSG_DONTWAIT);
    if (found > 0)
      done += static_cast<size_t>(found);
    else if (found < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Transfer waited = waitFor(socket, POLLIN, deadline, alarm); waited != Transfer::Done)
        return waited;
    } else
      return Transfer::Closed;
  }
  return Transfer::Done;
}

} // namespace cleave
