// TCP as ranks use it: descriptors that close themselves, addresses, and transfers with a deadline for the time before
// ranks know each other. IPv4 and IPv6. Sockets do not block and are not inherited by programs that this one starts.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace cleave {

using Clock = std::chrono::steady_clock;

/// `seconds` from now; far away for what no clock can hold.
Clock::time_point deadlineIn(double seconds);
/// Milliseconds until then, as poll() takes them: at least 0, rounded up.
int millisecondsUntil(Clock::time_point deadline);

/// Owns a descriptor.
class Socket {
public:
  explicit Socket(int descriptor = -1) : descriptor(descriptor) {}
  Socket(Socket &&other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(descriptor, other.descriptor);
    return *this;
  }
  ~Socket() { close(); }
  void close();
  int fd() const { return descriptor; }
  explicit operator bool() const { return descriptor >= 0; }

private:
  int descriptor;
};

/// An address and a port.
class Endpoint {
public:
  Endpoint() = default;
  Endpoint(const sockaddr *address, socklen_t bytes);
  /// IPv6, or IPv4 mapped into it.
  Endpoint(const std::array<uint8_t, 16> &address, uint16_t port);
  static Endpoint ofPeer(const Socket &socket);
  static Endpoint ofSelf(const Socket &socket);
  std::array<uint8_t, 16> address() const;
  uint16_t port() const;
  Endpoint withPort(uint16_t port) const;
  bool isLoopback() const;
  bool isAny() const; ///< every address of a host
  std::string text() const; ///< 10.0.0.1:29500, [::1]:29500
  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  socklen_t bytes() const { return length; }
  bool operator==(const Endpoint &other) const { return address() == other.address() && port() == other.port(); }

private:
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Listens on every address of this host; port 0 is any that is free. errno says why where the socket is empty.
Socket listenOn(uint16_t port);
/// The same on one address of this host; EADDRNOTAVAIL where it is none of this host's.
Socket listenAt(const Endpoint &place);
/// The next connection that waits; empty where none does.
Socket acceptFrom(const Socket &listener);
/// Empty, with errno, where there is no answer before the deadline; `alarm` is a descriptor that ends the wait (-1:
/// none) with ECANCELED.
Socket connectTo(const Endpoint &to, Clock::time_point deadline, int alarm);
/// All addresses of a host's name. `problem` says why there is none.
std::vector<Endpoint> resolve(const std::string &host, uint16_t port, std::string &problem);

enum class Transfer { Done, Closed, TimedOut, Alarmed };
Transfer sendAll(const Socket &socket, const void *data, size_t bytes, Clock::time_point deadline, int alarm);
/// `got`: bytes that came, also where it ends early.
Transfer receiveAll(const Socket &socket, void *data, size_t bytes, Clock::time_point deadline, int alarm,
                    size_t *got = nullptr);

} // namespace cleave
