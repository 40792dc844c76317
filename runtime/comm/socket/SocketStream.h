// A connection's bytes over TCP; poll() says when it is ready.
#pragma once
#include "runtime/comm/Connection.h"
#include "runtime/comm/socket/Socket.h"

namespace cleave {

class SocketStream final : public ByteStream {
public:
  explicit SocketStream(Socket socket) : socket(std::move(socket)) {}
  ssize_t write(std::span<iovec> parts) override;
  ssize_t read(std::byte *to, size_t most) override;
  int fd() const override { return socket.fd(); }
  size_t readAhead() const override { return 64 << 10; }

private:
  Socket socket;
};

} // namespace cleave
