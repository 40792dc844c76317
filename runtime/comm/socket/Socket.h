// TCP sockets: RAII descriptors, addresses, and transfers with a deadline for use before the rendezvous. IPv4 and IPv6.
// Sockets are non-blocking and close-on-exec.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace cleave {

using Clock = std::chrono::steady_clock;

/// `seconds` from now; clamped to what the clock can represent.
Clock::time_point deadlineIn(double seconds);
/// Milliseconds until then for poll(): at least 0, rounded up.
int millisecondsUntil(Clock::time_point deadline);

/// The pauses between attempts: from 10 ms to half a second.
class Pause {
public:
  /// `alarm`: a descriptor that ends the attempts when readable (-1: none).
  Pause(Clock::time_point deadline, int alarm) : deadline(deadline), alarm(alarm) {}
  /// Waits; returns whether to try again.
  bool wait();

private:
  Clock::time_point deadline;
  int alarm, milliseconds = 10;
};

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
  /// IPv6, or IPv4-mapped.
  Endpoint(const std::array<uint8_t, 16> &address, uint16_t port);
  static Endpoint ofPeer(const Socket &socket);
  static Endpoint ofSelf(const Socket &socket);
  std::array<uint8_t, 16> address() const;
  uint16_t port() const;
  Endpoint withPort(uint16_t port) const;
  bool isLoopback() const;
  bool isAny() const;       ///< the wildcard address
  std::string text() const; ///< 10.0.0.1:29500, [::1]:29500
  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  socklen_t bytes() const { return length; }
  bool operator==(const Endpoint &other) const { return address() == other.address() && port() == other.port(); }

private:
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// Raises the descriptor limit, for a connection to every other rank.
void raiseDescriptorLimit(unsigned ranks);

/// Listens on every address of this host; port 0 means any free port. If the socket is empty, errno is set.
Socket listenOn(uint16_t port);
/// Listens on one address of this host; EADDRNOTAVAIL if the address is not local.
Socket listenAt(const Endpoint &place);
/// Accepts the next pending connection; empty if there is none.
Socket acceptFrom(const Socket &listener);
/// Empty, with errno set, if there is no answer before the deadline. `alarm`: a descriptor that ends the wait with
/// ECANCELED when readable (-1: none).
Socket connectTo(const Endpoint &to, Clock::time_point deadline, int alarm);
/// Tries these addresses in turn until one accepts; empty at the deadline or the alarm. `problem`: why the last address
/// did not accept.
Socket connectPatiently(std::span<const Endpoint> places, Clock::time_point deadline, int alarm, std::string &problem);
/// All addresses of a host name. If there is none, `problem` tells why.
std::vector<Endpoint> resolve(const std::string &host, uint16_t port, std::string &problem);

enum class Transfer { Done, Closed, TimedOut, Alarmed };
Transfer sendAll(const Socket &socket, const void *data, size_t bytes, Clock::time_point deadline, int alarm);
/// `got`: bytes received, also on early return.
Transfer receiveAll(const Socket &socket, void *data, size_t bytes, Clock::time_point deadline, int alarm,
                    size_t *got = nullptr);

} // namespace cleave
