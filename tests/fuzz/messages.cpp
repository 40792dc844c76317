// What processes send each other: hellos, challenges, tables of addresses, refusals, heartbeats, frames, the values
// that ranks compare, a launcher's store. The first byte of an input chooses the conversation; the rest is what the
// other side says before it closes. Whatever it is, it ends with an Error without control characters or as if it were
// right, soon, and in memory that grows with what was said.
#include "runtime/base/Error.h"
#include "runtime/base/Printable.h"
#include "runtime/comm/Connection.h"
#include "runtime/comm/Exchange.h"
#include "runtime/comm/socket/AgentStore.h"
#include "runtime/comm/socket/Introduce.h"
#include "runtime/comm/socket/PeerWatch.h"
#include "runtime/comm/socket/PendingConnection.h"
#include "runtime/comm/socket/Rendezvous.h"
#include "runtime/session/Agreement.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <linux/sockios.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <thread>

using namespace cleave;

namespace {

void require(bool ok) {
  if (!ok)
    std::abort();
}

/// Takes values from the front of an input; zeros at its end.
struct Input {
  std::string_view left;
  template <typename T> T take() {
    T value{};
    const size_t count = std::min(left.size(), sizeof value);
    std::memcpy(&value, left.data(), count);
    left.remove_prefix(count);
    return value;
  }
};

/// Runs a conversation; its errors have a status and no control characters.
void holds(const std::function<void()> &fn) {
  try {
    fn();
  } catch (const Error &error) {
    require(error.status == Status::User || error.status == Status::Environment);
    require(*error.what() && !controlCharacter(error.what(), true));
  }
}

/// Both ends of a connection.
std::array<Socket, 2> pairOfSockets() {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

/// Sends as much as fits, and says that nothing more follows.
void sayAll(const Socket &to, std::string_view text) {
  sendAll(to, text.data(), text.size(), Clock::now(), -1);
  ::shutdown(to.fd(), SHUT_WR);
}

/// A listener that answers each connection with the current input.
class Server {
public:
  Server() : listener(listenAt(Endpoint(resolve("127.0.0.1", 0, problem).at(0)))) {
    std::thread([this] {
      for (;;)
        if (const Socket guest = acceptFrom(listener)) {
          const linger reset{1, 0}; // leaves no port behind
          ::setsockopt(guest.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
          sayAll(guest, text);
          char ignored[4096]; // until the other side closes
          while (receiveAll(guest, ignored, sizeof ignored, deadlineIn(5), -1) == Transfer::Done) {
          }
        } else
          std::this_thread::yield();
    }).detach();
  }
  TorchEnvironment rankOne(std::string_view answer) {
    text = answer;
    TorchEnvironment who;
    who.rank = 1;
    who.size = 2;
    who.address = "127.0.0.1";
    who.port = Endpoint::ofSelf(listener).port();
    return who;
  }

private:
  std::string problem, text; ///< changed only while nobody connects
  Socket listener;
};

Server &server() {
  static Server &one = *new Server;
  return one;
}

/// A rank that introduces itself to rank 0, and waits for the table.
void arrive(std::string_view text) { meet(server().rankOne(text), 0); }

/// A rank that asks the launcher's store.
void askStore(std::string_view text) {
  TorchEnvironment who = server().rankOne(text);
  who.storeKey = "cleave/x/0";
  AgentStore(who, deadlineIn(5)).find();
}

/// Rank 0, or a rank that others connect to.
void acceptOne(std::string_view text) {
  static const Socket listener = [] {
    Socket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    const sa_family_t any = AF_UNIX; // the system chooses a name
    require(::bind(made.fd(), reinterpret_cast<const sockaddr *>(&any), sizeof any) == 0);
    require(::listen(made.fd(), 64) == 0);
    return made;
  }();
  sockaddr_un place{};
  socklen_t bytes = sizeof place;
  ::getsockname(listener.fd(), reinterpret_cast<sockaddr *>(&place), &bytes);
  const Socket guest(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  require(::connect(guest.fd(), reinterpret_cast<const sockaddr *>(&place), bytes) == 0);
  sayAll(guest, text);
  ConnectionAcceptor acceptor(listener, -1, 2);
  if (auto pending = acceptor.next(deadlineIn(0.001))) {
    require(acceptor.reject(*pending, "ours"));
    require(!controlCharacter(acceptor.text(), false));
  }
}

/// The heartbeats of rank 0 (`me` = 1) or of rank 1 (`me` = 0).
void heartbeats(unsigned me, std::string_view text) {
  auto [mine, theirs] = pairOfSockets();
  sayAll(theirs, text);
  std::vector<Socket> links(me == 0 ? 2 : 1);
  links.back() = std::move(mine);
  PeerWatch watch(me, std::move(links));
  for (int unread = 1; unread > 0 && ::ioctl(theirs.fd(), SIOCOUTQ, &unread) == 0;)
    std::this_thread::yield();
  theirs.close();
  require(!controlCharacter(watch.firstFailure(), true));
  holds([&] { watch.check(); });
}

/// A stream of frames. The input says which are whole: only their headers get a number and a check.
class Frames final : public ByteStream {
public:
  explicit Frames(Input input) {
    for (uint32_t number = 0; !input.left.empty();) {
      const auto flags = input.take<uint8_t>();
      FrameHeader header = input.take<FrameHeader>();
      if (flags & 1) { // small enough to arrive
        header.channel &= 1, header.tag &= 3, header.microbatch = 0;
        header.bytes %= (flags & 2) ? uint64_t{40} : ~uint64_t{0};
        header.number = number++;
        header.check = header.ownCheck();
      }
      bytes.append(reinterpret_cast<const char *>(&header), sizeof header);
      const size_t count = std::min<uint64_t>(header.bytes, input.left.size());
      bytes.append(input.left.substr(0, count));
      input.left.remove_prefix(count);
    }
  }
  ssize_t write(std::span<iovec>) override { return 0; }
  ssize_t read(std::byte *to, size_t most) override {
    const size_t count = std::min(most, bytes.size() - at);
    std::memcpy(to, bytes.data() + at, count);
    at += count;
    return count ? static_cast<ssize_t>(count) : -1;
  }
  size_t readAhead() const override { return 64; }

private:
  std::string bytes;
  size_t at = 0;
};

void frames(std::string_view text) {
  EarlyBuffers buffers;
  Connection connection(std::make_unique<Frames>(Input{text}), 1, buffers);
  std::array<char, 40> memory;
  for (uint32_t tag = 0; tag < 8; ++tag) {
    connection.expect({tag & 1, tag / 2, 0, tag * 5}, memory.data());
    while (connection.awaits() && !connection.isClosed())
      connection.read();
    if (connection.awaits())
      return;
  }
}

/// A rank whose only peer, rank `1 - me`, says the input.
class Told final : public ExchangeEndpoint {
public:
  Told(unsigned me, std::string_view text) : me(me), input{text} {}
  unsigned rank() const override { return me; }
  unsigned size() const override { return 2; }
  Communicator &group(std::span<const uint32_t>) override { std::abort(); }
  void setTimeout(double) override {}
  void setThreads(unsigned) override {}
  void send(const void *, size_t, unsigned, uint32_t, int32_t) override {}
  void waitSend(uint32_t, int32_t) override {}
  void waitAllSends() override {}
  void recv(void *data, size_t bytes, unsigned, uint32_t, int32_t) override { take(data, bytes); }
  void reserveSends(size_t) override {}
  void checkMessage(uint32_t, int32_t) const override {}
  void detach() override {}
  void abort(const std::string &, Status) override {}
  void checkPeers() override {}
  std::string failure() const override { return ""; }
  void barrier() override {}

private:
  void broadcastBytes(std::byte *data, size_t bytes) override { take(data, bytes); }
  void take(void *data, size_t bytes) {
    if (bytes > input.left.size())
      throw environmentError("no answer");
    std::memcpy(data, input.left.data(), bytes);
    input.left.remove_prefix(bytes);
  }
  unsigned me;
  Input input;
};

/// Values of rank 1 as rank 0 gathers them, whatever they are.
void compare(std::string_view text) {
  const uint64_t size = text.size();
  std::string whole(reinterpret_cast<const char *>(&size), sizeof size);
  whole += text;
  Told world(0, whole);
  compareAmongRanks(world, {{"--seed", "1"}, {"version of Cleave", "0.1.0"}});
}

void collect(unsigned me, std::string_view text) {
  Told world(me, text);
  std::vector<uint8_t> bytes;
  if (me == 0)
    world.gather(bytes);
  else
    world.broadcast(bytes);
}

} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  ::unsetenv("CLEAVE_SECRET");
  ::unsetenv("CLEAVE_SECRET_FILE");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input{{reinterpret_cast<const char *>(data), size}};
  const auto which = input.take<uint8_t>();
  const std::string_view text = input.left;
  const std::array<std::function<void()>, 9> conversations{
      [&] { arrive(text); },        [&] { acceptOne(text); },  [&] { heartbeats(0, text); },
      [&] { heartbeats(1, text); }, [&] { frames(text); },     [&] { askStore(text); },
      [&] { compare(text); },       [&] { collect(0, text); }, [&] { collect(1, text); }};
  holds(conversations[which % conversations.size()]);
  return 0;
}
