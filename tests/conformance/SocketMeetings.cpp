// How ranks meet over sockets: who is let in, who is turned away, and what is said about it.
#include "runtime/base/Error.h"
#include "runtime/comm/socket/Heartbeats.h"
#include "runtime/comm/socket/Introduce.h"
#include "runtime/comm/socket/Rendezvous.h"
#include "runtime/comm/socket/RendezvousMessages.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "tests/conformance/SocketRanks.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

using namespace cleave;
using namespace cleave::test;

TEST_CASE("sockets: ranks that do not fit together are one error that names the values") {
  const uint16_t port = freePort();
  SECTION("another WORLD_SIZE") {
    const auto thrown =
        eachRank(3, [&](unsigned rank) { SocketWorld world(rankOf(rank, rank == 2 ? 4 : 3, port), 10); });
    for (unsigned rank : {0, 2})
      CHECK(has(thrown[rank], "WORLD_SIZE=3 at rank 0, but WORLD_SIZE=4 at rank 2"));
  }
  SECTION("the same RANK twice") {
    const auto thrown =
        eachRank(3, [&](unsigned rank) { SocketWorld world(rankOf(rank == 2 ? 1 : rank, 3, port), 10); });
    for (const std::string &text : thrown)
      CHECK(has(text, "RANK=1 is used twice, by "));
  }
  SECTION("the same RANK twice, the second after all have met") {
    std::atomic<int> met{0};
    const auto thrown = eachRank(3, [&](unsigned rank) {
      while (rank == 2 && met < 2)
        std::this_thread::yield();
      SocketWorld world(rankOf(rank == 2 ? 1 : rank, 2, port), 10);
      ++met;
      world.barrier();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      world.barrier();
    });
    CHECK((thrown[0].empty() && thrown[1].empty()));
    CHECK(has(thrown[2], "RANK=1 is used twice: the 2 ranks of the job at MASTER_ADDR="));
  }
  const auto stranger = [&](std::string_view text) {
    std::string problem;
    Socket socket;
    while (!socket)
      socket = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1);
    sendAll(socket, text.data(), text.size(), deadlineIn(5), -1);
    return socket;
  };
  SECTION("strangers who talk are turned away") {
    CHECK(eachRank(2, [&](unsigned rank) {
            if (rank == 1)
              for (const char *text :
                   {"GET / HTTP/1.0\r\n\r\n", "\r", "\rCLEAVE\nwho knows what comes now, nobody does, and no version"})
                stranger(text);
            SocketWorld world(rankOf(rank, 2, port), 10);
            world.barrier();
          }) == none(2));
  }
  SECTION("strangers are named where ranks are missing") {
    const auto thrown = eachRank(2, [&](unsigned rank) {
      if (rank == 0)
        SocketWorld world(rankOf(0, 2, port), 1);
      else {
        const Socket kept = stranger("GET / HTTP/1.0\r\n\r\n");
        std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      }
    });
    CHECK(has(thrown[0], "no connection from rank 1"));
    CHECK(has(thrown[0], "rejected, because they are no ranks of this job: 1 connection, the first from 127.0.0.1:"));
    CHECK(has(thrown[0], "47 45 54 20"));
  }
  SECTION("very many who say nothing make room") {
    std::vector<Socket> silent;
    CHECK(eachRank(2, [&](unsigned rank) {
            if (rank == 1)
              for (int i = 0; i < 100; ++i)
                silent.push_back(stranger(""));
            SocketWorld world(rankOf(rank, 2, port), 10);
            world.barrier();
          }) == none(2));
  }
  SECTION("one who says nothing keeps nobody waiting") {
    Socket silent, gone;
    CHECK(eachRank(2, [&](unsigned rank) {
            if (rank == 1) {
              std::string problem;
              while (!silent)
                silent = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1);
              gone = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1);
              gone.close();
            }
            SocketWorld world(rankOf(rank, 2, port), 10);
            world.barrier();
          }) == none(2));
  }
  SECTION("a stranger at MASTER_PORT") {
    const Socket listener = listenOn(port);
    const auto thrown = eachRank(2, [&](unsigned rank) {
      if (rank == 1) {
        SocketWorld world(rankOf(1, 2, port), 10);
        return;
      }
      Socket guest;
      while (!guest)
        guest = acceptFrom(listener);
      sendAll(guest, "220 ready\r\n", 11, deadlineIn(5), -1);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    });
    CHECK(has(thrown[1], "is not rank 0 of this program"));
  }
  SECTION("a port that is taken") {
    const Socket listener = listenOn(port);
    try {
      SocketWorld world(rankOf(0, 2, port), 10);
      FAIL("no exception");
    } catch (const Error &error) {
      CHECK(error.status == Status::Environment);
      CHECK(has(error.what(), "MASTER_PORT=" + std::to_string(port)));
      CHECK(has(error.what(), "taken"));
    }
  }
  SECTION("ranks that do not come") {
    const auto thrown = eachRank(2, [&](unsigned rank) { SocketWorld world(rankOf(rank, 4, port), 0.5); });
    CHECK(has(thrown[0], "no connection from rank 2, 3 within 0.5 s"));
    CHECK(!thrown[1].empty());
  }
  SECTION("no rank 0") {
    const auto thrown = eachRank(1, [&](unsigned) { SocketWorld world(rankOf(1, 2, port), 0.3); });
    CHECK(has(thrown[0], "no rank 0 answers at MASTER_ADDR=127.0.0.1"));
  }
  SECTION("a name that does not resolve") {
    TorchEnvironment who = rankOf(1, 2, port);
    who.address = "no-such-host.invalid";
    try {
      SocketWorld world(who, 5);
      FAIL("no exception");
    } catch (const Error &error) {
      CHECK(error.status == Status::User);
      CHECK(has(error.what(), "MASTER_ADDR=no-such-host.invalid"));
    }
  }
}

namespace {

/// The ports at which this process listens on every address of the host.
std::vector<unsigned> openToAll() {
  std::set<std::string> mine; // inode numbers of this process's sockets
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string link = std::filesystem::read_symlink(entry.path(), ignored).string(); // socket:[123]
    if (link.starts_with("socket:["))
      mine.insert(link.substr(8, link.size() - 9));
  }
  std::vector<unsigned> ports;
  for (const char *table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string word[10];
      for (std::string &each : word)
        words >> each;
      const size_t colon = word[1].find(':');
      if (word[3] == "0A" && mine.contains(word[9]) && word[1].find_first_not_of('0') == colon)
        ports.push_back(unsigned(std::stoul(word[1].substr(colon + 1), nullptr, 16)));
    }
  }
  return ports;
}

} // namespace

TEST_CASE("sockets: ranks listen at the address they meet at, and on no other") {
  {
    const Socket open = listenOn(0);
    CHECK(openToAll() == std::vector<unsigned>{Endpoint::ofSelf(open).port()});
  }
  for (const char *address : {"127.0.0.1", "127.0.0.3", "localhost"}) {
    INFO(address);
    const uint16_t port = freePort();
    std::atomic<bool> looked{false};
    const auto thrown = eachRank(3, [&](unsigned rank) {
      TorchEnvironment who = rankOf(rank, 3, port);
      who.address = address;
      if (rank == 2) { // the others listen: rank 0 at two ports, rank 1 at one
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::string problem;
        CHECK(openToAll().empty());
        CHECK(!connectTo(resolve("127.0.0.2", port, problem).at(0), deadlineIn(5), -1));
        looked = true;
      }
      SocketWorld world(who, 10);
      world.barrier();
    });
    CHECK(thrown == none(3));
    CHECK(looked);
  }
}

TEST_CASE("sockets: heartbeats of ranks that MPI started on one host meet at a loopback address") {
  for (const bool oneHost : {true, false}) {
    std::promise<std::vector<uint8_t>> told; // replaces MPI's broadcast
    auto rank0 = std::async(std::launch::async, [&] {
      return connectHeartbeats(0, 2, oneHost, [&](std::vector<uint8_t> &bytes) { told.set_value(bytes); }, 10);
    });
    const std::vector<uint8_t> said = told.get_future().get();
    CHECK(openToAll().empty() == oneHost);
    CHECK((std::string(said.begin(), said.end()).find(" 127.0.0.1") != std::string::npos));
    const auto links = connectHeartbeats(1, 2, oneHost, [&](std::vector<uint8_t> &bytes) { bytes = said; }, 10);
    CHECK((links.size() == 1 && links[0]));
    CHECK(bool(rank0.get().at(1)));
  }
}

TEST_CASE("sockets: one who did not meet the ranks cannot join them later") {
  const uint16_t port = freePort();
  std::atomic<uint16_t> mesh{0};
  const auto ensure = [](bool holds, const char *what) { // Catch2's assertions support one thread only
    if (!holds)
      throw std::runtime_error(what);
  };
  const auto thrown = eachRank(3, [&](unsigned rank) {
    const Meeting meeting = meet(rankOf(rank, 3, port), 10);
    if (rank == 0)
      mesh = Endpoint::ofSelf(meeting.listener).port();
    if (rank == 2) { // claims to be rank 1, before the true rank 1
      while (mesh == 0)
        std::this_thread::yield();
      std::string problem;
      const Socket forged = connectTo(resolve("127.0.0.1", mesh, problem).at(0), deadlineIn(5), -1);
      struct {
        uint64_t word = 0x0a45'5641'454c'430dull;
        uint32_t version = 3, size = 3, rank = 1, port = 0;
        uint64_t job = 0, proof[2] = {};
      } hello;
      sendAll(forged, &hello, sizeof hello, deadlineIn(5), -1);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      char byte = 0; // rank 0 rejects it
      const auto all = connectAll(meeting, rankOf(rank, 3, port), 10, -1);
      ensure(receiveAll(forged, &byte, 1, deadlineIn(5), -1) == Transfer::Closed, "the forged rank was let in");
      return;
    }
    if (rank == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto all = connectAll(meeting, rankOf(rank, 3, port), 10, -1);
    ensure(all.size() == 3, "a rank is missing");
    char byte = 7; // rank 0 is connected to the true rank 1
    if (rank == 1)
      sendAll(all[0], &byte, 1, deadlineIn(5), -1);
    else {
      byte = 0;
      ensure(receiveAll(all[1], &byte, 1, deadlineIn(5), -1) == Transfer::Done && byte == 7, "not the true rank 1");
    }
  });
  CHECK(thrown == none(3));
}

namespace {

/// A stranger between a rank and rank 0: passes everything on until one of them closes, and returns what the rank said.
std::string overhear(const Socket &listener, uint16_t master) {
  Socket ends[2];
  while (!ends[0])
    ends[0] = acceptFrom(listener);
  std::string problem;
  while (!ends[1])
    ends[1] = connectTo(resolve("127.0.0.1", master, problem).at(0), deadlineIn(5), -1);
  std::string said;
  for (;;)
    for (int from : {0, 1}) {
      char byte;
      const Transfer done = receiveAll(ends[from], &byte, 1, deadlineIn(0.001), -1);
      if (done == Transfer::Closed)
        return said;
      if (done != Transfer::Done)
        continue;
      sendAll(ends[1 - from], &byte, 1, deadlineIn(5), -1);
      if (from == 0)
        said += byte;
    }
}

/// The message with which rank 0 of two ends if only a connection with this text comes.
std::string answerTo(const std::string &text) {
  const uint16_t port = freePort();
  auto rank0 = std::async(std::launch::async, [&]() -> std::string {
    try {
      meet(rankOf(0, 2, port), 1);
      return "";
    } catch (const Error &error) {
      return error.what();
    }
  });
  Socket stranger;
  std::string problem;
  while (!stranger)
    stranger = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1);
  sendAll(stranger, text.data(), text.size(), deadlineIn(5), -1);
  ::shutdown(stranger.fd(), SHUT_WR);
  return rank0.get();
}

} // namespace

TEST_CASE("sockets: what a rank said to prove that it knows the secret cannot be said again") {
  ::setenv("CLEAVE_SECRET", "ours", 1);
  const uint16_t port = freePort();
  const Socket listener = listenOn(0);
  std::string said;
  const auto thrown = eachRank(3, [&](unsigned rank) {
    if (rank == 2)
      said = overhear(listener, port);
    else
      meet(rankOf(rank, 2, rank == 0 ? port : Endpoint::ofSelf(listener).port()), 10);
  });
  CHECK(thrown == none(3));
  REQUIRE(said.size() == 96); // a hello without a proof, and one with it
  const std::string first = said.substr(0, 48), second = said.substr(48);
  CHECK(first.substr(0, 32) == second.substr(0, 32));
  CHECK(first.substr(32) == std::string(16, '\0'));
  for (const auto &[text, why] : {std::pair(said, "it does not know the job's secret"),
                                  std::pair(second + second, "it does not know the job's secret"),
                                  std::pair(second, "it did not answer the challenge")}) {
    const std::string answer = answerTo(text);
    INFO(answer);
    CHECK(has(answer, "no connection from rank 1 within 1 s"));
    CHECK(has(answer, why));
  }
  std::string older = first; // another version is named before any challenge
  older[8] = 4;
  CHECK(has(answerTo(older), "it speaks protocol 4, rank 0 speaks 6"));
  ::unsetenv("CLEAVE_SECRET");
}

TEST_CASE("sockets: by IPv6 and by name") {
  for (const char *address : {"::1", "localhost"}) {
    if (address[0] == ':' && !connectTo(Endpoint::ofSelf(listenOn(0)), deadlineIn(1), -1))
      continue; // a host without IPv6
    const uint16_t port = freePort();
    INFO(address);
    CHECK(eachRank(3, [&](unsigned rank) {
            TorchEnvironment who = rankOf(rank, 3, port);
            who.address = address;
            SocketWorld world(who, 10);
            world.barrier();
          }) == none(3));
  }
}

namespace {

/// A connection to this port of this host.
Socket connected(uint16_t port) {
  std::string problem;
  for (;;)
    if (Socket made = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1))
      return made;
}

/// The next connection of a listener.
Socket accepted(const Socket &listener) {
  for (;;)
    if (Socket made = acceptFrom(listener))
      return made;
}

void say(const Socket &to, const auto &value) { sendAll(to, &value, sizeof value, deadlineIn(5), -1); }

/// Reads a hello.
Hello heard(const Socket &from) {
  Hello hello;
  receiveAll(from, &hello, sizeof hello, deadlineIn(5), -1);
  return hello;
}

/// What rank 1 of 2 throws if this answers its connections.
std::string rankOneAt(const std::function<void(const Socket &)> &rankZero) {
  const Socket listener = listenOn(0);
  std::atomic<bool> done{false};
  std::string thrown;
  std::thread rank([&] {
    try {
      meet(rankOf(1, 2, Endpoint::ofSelf(listener).port()), 2);
    } catch (const Error &error) {
      thrown = error.what();
    }
    done = true;
  });
  const Socket guest = accepted(listener);
  rankZero(guest);
  rank.join();
  return thrown;
}

void challenge(const Socket &guest) {
  heard(guest);
  say(guest, Challenge{});
  heard(guest);
}

} // namespace

TEST_CASE("sockets: a process of another version is refused at once, and the ranks meet") {
  for (const char *secret : {"", "ours"}) {
    if (*secret)
      ::setenv("CLEAVE_SECRET", secret, 1);
    const uint16_t port = freePort();
    ReceivedAnswer answer;
    CHECK(eachRank(2, [&](unsigned rank) {
            if (rank == 1) {
              const Socket other = connected(port);
              say(other, Hello{.version = 99, .size = 2, .rank = 1});
              answer = receiveAnswer(other, 0, deadlineIn(5), -1);
            }
            meet(rankOf(rank, 2, port), 10);
          }) == none(2));
    CHECK(answer.done == Transfer::Done);
    CHECK(answer.answer.status == uint32_t(Status::Environment));
    CHECK(has(answer.body, "rank 0 speaks protocol 6, 127.0.0.1:"));
    CHECK(has(answer.body, "speaks 99: all ranks must run the same program"));
    ::unsetenv("CLEAVE_SECRET");
  }
}

TEST_CASE("sockets: a rank with another secret learns it at once, and rank 0 names it where ranks are missing") {
  ::setenv("CLEAVE_SECRET", "ours", 1);
  const uint16_t port = freePort();
  std::optional<ReceivedAnswer> answer;
  const auto thrown = eachRank(2, [&](unsigned rank) {
    if (rank == 0)
      meet(rankOf(0, 2, port), 1);
    else
      answer = introduce(connected(port), Hello{.size = 2, .rank = 1}, "theirs", deadlineIn(5), -1);
  });
  ::unsetenv("CLEAVE_SECRET");
  REQUIRE(answer);
  CHECK(answer->answer.status == uint32_t(Status::User));
  CHECK(has(answer->body, "rank 0 does not accept the secret of this rank"));
  CHECK(has(thrown[0], "no connection from rank 1 within 1 s"));
  CHECK(has(thrown[0], "it does not know the job's secret"));
}

TEST_CASE("sockets: what rank 0 announces takes no memory, and what it says reaches no terminal") {
  const std::string foreign = "is not rank 0 of this program";
  constexpr uint32_t huge = 4'000'000'000;
  CHECK(has(rankOneAt([&](const Socket &guest) { say(guest, Answer{.bytes = huge}); }), foreign));
  CHECK(has(rankOneAt([&](const Socket &guest) { say(guest, Answer{.status = 3, .bytes = huge}); }), foreign));
  CHECK(has(rankOneAt([&](const Socket &guest) { say(guest, Answer{.bytes = 3}), say(guest, std::array<char, 3>{}); }),
            foreign));
  CHECK(has(rankOneAt([&](const Socket &guest) { challenge(guest), say(guest, Answer{.bytes = huge}); }), foreign));
  const auto table = [&](uint32_t bytes) {
    return rankOneAt([&](const Socket &guest) {
      challenge(guest);
      say(guest, Answer{});
      say(guest, Answer{.bytes = bytes});
      const std::vector<char> zeros(std::min<uint32_t>(bytes, 100));
      sendAll(guest, zeros.data(), zeros.size(), deadlineIn(5), -1);
      ::shutdown(guest.fd(), SHUT_WR);
    });
  };
  CHECK(has(table(huge), foreign));
  CHECK(has(table(1), "the table of addresses must have 36 bytes, rank 0 sent 1"));
  const std::string text = "\x1b]0;title\x07 \xc2\x9b red";
  const std::string thrown = rankOneAt([&](const Socket &guest) {
    say(guest, Answer{.status = 2, .bytes = static_cast<uint32_t>(text.size())});
    sendAll(guest, text.data(), text.size(), deadlineIn(5), -1);
  });
  CHECK(thrown == "?]0;title? ? red");
}

TEST_CASE("sockets: ranks whose connections are closed among many try again, and rank 0 says that it closes some") {
  const uint16_t port = freePort();
  SECTION("a flood") {
    std::atomic<bool> met{false};
    std::vector<Socket> flood;
    CHECK(eachRank(4, [&](unsigned rank) {
            if (rank < 3) {
              if (rank == 2) // comes in the middle of it
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
              SocketWorld world(rankOf(rank, 3, port), 20);
              world.barrier();
              met = true;
            }
            for (std::string problem; rank == 3 && !met;) { // these say hello, as ranks do, and no more
              const Socket socket = connectTo(resolve("127.0.0.1", port, problem).at(0), deadlineIn(5), -1);
              if (!socket)
                continue;
              say(socket, Hello{.size = 3, .rank = 2});
              flood.push_back(Socket(::dup(socket.fd())));
              if (flood.size() > 300)
                flood.erase(flood.begin(), flood.begin() + 100);
            }
          }) == none(4));
  }
  SECTION("rank 0 closes before the challenge, and after it") {
    std::optional<Socket> listener = listenOn(port);
    CHECK(eachRank(2, [&](unsigned rank) {
            if (rank == 0) {
              accepted(*listener);
              const Socket second = accepted(*listener);
              heard(second);
              say(second, Challenge{});
            }
            if (rank == 0)
              listener.reset();
            meet(rankOf(rank, 2, port), 10);
          }) == none(2));
  }
  SECTION("nobody else comes") {
    std::vector<Socket> silent;
    const auto thrown = eachRank(2, [&](unsigned rank) {
      if (rank == 0)
        meet(rankOf(0, 2, port), 1);
      for (int i = 0; rank == 1 && i < 100; ++i)
        silent.push_back(connected(port));
    });
    CHECK(has(thrown[0], "no connection from rank 1 within 1 s"));
    CHECK(has(thrown[0], "closed, because too many came at once: "));
  }
}
