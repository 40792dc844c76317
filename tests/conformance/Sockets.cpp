// Communicators over sockets: each thread is a rank with its own world, as a process would be. SocketProcesses.cpp has
// the cases with dying processes.
#include "runtime/base/Error.h"
#include "runtime/comm/socket/Heartbeats.h"
#include "runtime/comm/socket/Rendezvous.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "tests/conformance/CollectiveChecks.h"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

using namespace cleave;

namespace {

TorchEnvironment rankOf(unsigned rank, unsigned size, uint16_t port) {
  TorchEnvironment who;
  who.rank = rank;
  who.size = size;
  who.address = "127.0.0.1";
  who.port = port;
  return who;
}

uint16_t freePort() { return Endpoint::ofSelf(listenOn(0)).port(); }

/// Runs `fn` in a thread for every rank. Returns the message that each rank threw, "" if none.
std::vector<std::string> eachRank(unsigned ranks, const std::function<void(unsigned)> &fn) {
  std::vector<std::string> thrown(ranks);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        fn(rank);
      } catch (const std::exception &error) {
        thrown[rank] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return thrown;
}

/// The same, with a world per rank; a successful rank ends with a barrier.
std::vector<std::string> eachWorld(unsigned ranks, const std::function<void(RankEndpoint &)> &fn) {
  const uint16_t port = freePort();
  return eachRank(ranks, [&](unsigned rank) {
    SocketWorld world(rankOf(rank, ranks, port), 30);
    world.setTimeout(60);
    try {
      fn(world);
      world.barrier();
    } catch (const std::exception &error) {
      world.abort(error.what());
      throw;
    }
  });
}

/// Whether messages go through shared memory.
void linkIf(bool linked, RankEndpoint &world) {
  if (linked)
    test::linkAll(world, 0);
}

std::vector<std::string> none(unsigned ranks) { return std::vector<std::string>(ranks); }

bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("sockets: collectives and messages, 1 to 5 ranks") {
  const bool shared = GENERATE(true, false);
  std::optional<test::NoSegments> refuse;
  if (!shared)
    refuse.emplace();
  for (unsigned ranks = shared ? 1 : 3; ranks <= (shared ? 5 : 3); ++ranks) {
    std::mutex mutex;
    std::vector<std::string> errors;
    const auto thrown = eachWorld(ranks, [&](RankEndpoint &world) {
      auto found = test::checkCollectives(world);
      auto more = test::checkMessages(world);
      world.barrier();
      const unsigned segments = test::sharedSegments(); // of all ranks
      world.barrier();
      std::lock_guard lock(mutex);
      if ((segments > 0) != (shared && ranks > 1))
        errors.push_back("shared segments: " + std::to_string(segments));
      errors.insert(errors.end(), found.begin(), found.end());
      errors.insert(errors.end(), more.begin(), more.end());
    });
    INFO(ranks << " ranks");
    CHECK(errors == std::vector<std::string>{});
    CHECK(thrown == none(ranks));
  }
}

TEST_CASE("sockets: large messages in both directions at once, while a collective runs") {
  const bool linked = GENERATE(false, true);
  constexpr size_t count = 12 << 20; // 48 MiB
  CHECK(eachWorld(3, [&](RankEndpoint &world) {
          linkIf(linked, world);
          const unsigned me = world.rank();
          std::vector<uint32_t> out(count, me + 1), in(count), all{0, 1, 2};
          for (unsigned peer = 0; peer < 3; ++peer)
            if (peer != me)
              world.send(out.data(), count * 4, peer, 1, 0);
          std::vector<float> sums(3'000'000, static_cast<float>(me));
          world.group(all).allReduce(sums.data(), sums.data(), 3'000'000, plan::DType::F32, plan::ReduceKind::Sum);
          if (sums != std::vector<float>(sums.size(), 3))
            throw environmentError("wrong sums");
          for (unsigned peer = 0; peer < 3; ++peer) {
            if (peer == me)
              continue;
            world.recv(in.data(), count * 4, peer, 1, 0);
            if (in != std::vector<uint32_t>(count, peer + 1))
              throw environmentError("wrong message");
          }
          world.waitAllSends();
        }) == none(3));
}

TEST_CASE("sockets: many small messages, taken late and in another order") {
  const bool linked = GENERATE(false, true);
  constexpr uint32_t many = 5000;
  CHECK(eachWorld(2, [&](RankEndpoint &world) {
          linkIf(linked, world);
          std::vector<uint32_t> out(many);
          std::iota(out.begin(), out.end(), 0u);
          for (uint32_t i = 0; i < many; ++i)
            world.send(&out[i], 4, 1 - world.rank(), i % 7, static_cast<int32_t>(i / 7));
          for (uint32_t i = many; i-- > 0;) {
            uint32_t got = 0;
            world.recv(&got, 4, 1 - world.rank(), i % 7, static_cast<int32_t>(i / 7));
            if (got != i)
              throw environmentError("wrong message");
          }
          world.waitAllSends();
        }) == none(2));
}

TEST_CASE("sockets: messages through memory that is always full") {
  constexpr uint32_t rounds = 60, many = 5000, words = 60; // through 64 KiB
  CHECK(eachWorld(2, [&](RankEndpoint &world) {
          linkIf(true, world);
          std::vector<uint32_t> out(many + words), in(words);
          std::iota(out.begin(), out.end(), 0u);
          for (uint32_t round = 0; round < rounds; ++round) {
            const auto bytesOf = [](uint32_t i) { return (1 + i * 7 % words) * size_t{4}; };
            for (uint32_t i = 0; i < many; ++i)
              world.send(&out[i], bytesOf(i), 1 - world.rank(), round, static_cast<int32_t>(i));
            for (uint32_t i = 0; i < many; ++i) {
              world.recv(in.data(), bytesOf(i), 1 - world.rank(), round, static_cast<int32_t>(i));
              if (in[0] != i || in[bytesOf(i) / 4 - 1] != i + bytesOf(i) / 4 - 1)
                throw environmentError("wrong message");
            }
            world.waitAllSends();
          }
        }) == none(2));
}

TEST_CASE("sockets: a rank that is not waited for is read no further than the buffers reach") {
  const bool linked = GENERATE(false, true);
  constexpr size_t count = 30 << 20; // 120 MiB per message: more than a rank may buffer
  CHECK(eachWorld(3, [&](RankEndpoint &world) {
          linkIf(linked, world);
          if (world.rank() == 0) {
            std::vector<uint8_t> out(count, 7);
            world.send(out.data(), count, 1, 5, 0);
            world.send(out.data(), count, 1, 5, 1);
            world.send(out.data(), count, 1, 5, 2);
            world.waitAllSends();
          } else if (world.rank() == 1) {
            char byte = 0;
            world.recv(&byte, 1, 2, 9, 0);
            std::vector<uint8_t> in(count);
            for (int32_t i = 0; i < 3; ++i) {
              world.recv(in.data(), count, 0, 5, i);
              if (in != std::vector<uint8_t>(count, 7))
                throw environmentError("wrong message");
            }
          } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            char byte = 1;
            world.send(&byte, 1, 1, 9, 0);
            world.waitAllSends();
          }
        }) == none(3));
}

TEST_CASE("sockets: one rank's failure ends the others' waits and names it") {
  const bool linked = GENERATE(false, true);
  const auto thrown = eachWorld(4, [&](RankEndpoint &world) {
    linkIf(linked, world);
    char byte;
    if (world.rank() == 2)
      throw environmentError("planted");
    if (world.rank() == 3) { // does not wait for messages
      for (;;) {
        world.checkPeers();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    if (world.rank() == 1)
      world.recv(&byte, 1, 0, 0, 0);
    world.barrier();
  });
  CHECK(thrown == std::vector<std::string>{"rank 2 failed: planted", "rank 2 failed: planted", "planted",
                                           "rank 2 failed: planted"});
}

TEST_CASE("sockets: waits have a deadline that names who and what was awaited") {
  const bool linked = GENERATE(false, true);
  const auto thrown = eachWorld(3, [&](RankEndpoint &world) {
    linkIf(linked, world);
    world.setTimeout(world.rank() == 0 ? 0.3 : 30);
    char byte;
    if (world.rank() == 0)
      world.recv(&byte, 1, 1, 7, 3);
    if (world.rank() == 1)
      std::this_thread::sleep_for(std::chrono::seconds(1));
    world.barrier();
  });
  CHECK(has(thrown[0], "no answer within 0.3 s from rank 1 while waiting for message 7 of microbatch 3 from rank 1"));
  CHECK(has(thrown[1], "rank 0 failed: no answer within 0.3 s from rank 1"));
  CHECK(has(thrown[2], "rank 0 failed: no answer within 0.3 s from rank 1"));
}

TEST_CASE("sockets: the error names the rank that keeps all others waiting, not one that waits itself") {
  const auto thrown = eachWorld(4, [&](RankEndpoint &world) {
    world.setTimeout(1.5);
    world.barrier();
    if (world.rank() == 3)
      std::this_thread::sleep_for(std::chrono::seconds(5));
    else
      world.barrier(); // rank 0 waits for 3, 1 for 0, 2 for 1
    world.checkPeers();
  });
  for (unsigned rank = 0; rank < 3; ++rank)
    CHECK(has(thrown[rank], "no answer within 1.5 s from rank 3 while waiting for ranks 0, 1, 2, 3"));
}

TEST_CASE("sockets: what is gathered has no number in messages") {
  const auto thrown = eachWorld(2, [&](RankEndpoint &world) {
    world.setTimeout(1);
    world.barrier();
    if (world.rank() == 0)
      world.gather({});
    else
      std::this_thread::sleep_for(std::chrono::seconds(3));
    world.checkPeers();
  });
  CHECK(thrown[0] == "no answer within 1 s from rank 1 while waiting for what rank 0 gathers from rank 1");
}

TEST_CASE("sockets: a size that a rank only announces takes no memory") {
  for (const uint64_t size : {uint64_t{1} << 62, ~uint64_t{0}}) {
    const auto thrown = eachWorld(2, [&](RankEndpoint &world) {
      world.setTimeout(world.rank() == 0 ? 1 : 30);
      if (world.rank() == 0)
        world.gather({});
      world.send(&size, sizeof size, 0, setupTag, setupMicrobatch);
      world.waitAllSends();
      std::this_thread::sleep_for(std::chrono::seconds(2)); // longer than rank 0 waits
      world.checkPeers();
    });
    CHECK(thrown[0] == "no answer within 1 s from rank 1 while waiting for what rank 0 gathers from rank 1");
  }
}

TEST_CASE("sockets: all ranks end with the status of the first that fails") {
  const uint16_t port = freePort();
  std::array<Status, 3> statuses{};
  eachRank(3, [&](unsigned rank) {
    SocketWorld world(rankOf(rank, 3, port), 30);
    try {
      world.barrier();
      if (rank == 2)
        throw userError("planted");
      world.barrier();
    } catch (const Error &error) {
      statuses[rank] = error.status;
      world.abort(error.what(), error.status);
    }
  });
  CHECK(statuses == std::array{Status::User, Status::User, Status::User});
}

TEST_CASE("sockets: a message of another size is refused") {
  const bool linked = GENERATE(false, true);
  const auto thrown = eachWorld(2, [&](RankEndpoint &world) {
    linkIf(linked, world);
    int data[2] = {};
    if (world.rank() == 0)
      world.send(data, 8, 1, 0, 0);
    else
      world.recv(data, 4, 0, 0, 0);
    world.waitAllSends();
  });
  CHECK(has(thrown[0], "rank 1 failed: message 0 of microbatch 0 from rank 0 must have 4 bytes, found 8"));
  CHECK(has(thrown[1], "message 0 of microbatch 0 from rank 0 must have 4 bytes, found 8"));
}

TEST_CASE("sockets: a rank that ends early has not failed, but is not waited for in vain") {
  const bool linked = GENERATE(false, true);
  const uint16_t port = freePort();
  std::atomic<bool> gone{false};
  const auto thrown = eachRank(3, [&](unsigned rank) {
    auto world = std::make_unique<SocketWorld>(rankOf(rank, 3, port), 30);
    world->setTimeout(30);
    linkIf(linked, *world);
    if (rank == 2) {
      int value = 5;
      world->send(&value, 4, 1, 0, 0);
      world->waitAllSends();
      world.reset();
      gone = true;
      return;
    }
    while (!gone)
      std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    std::vector<uint32_t> pair{0, 1};
    world->group(pair).barrier();
    world->checkPeers();
    int value = 0;
    if (rank == 1) {
      world->recv(&value, 4, 2, 0, 0); // rank 2 sent this before it ended
      if (value != 5)
        throw environmentError("wrong message");
      world->recv(&value, 4, 2, 1, 0);
    }
    world->group(pair).barrier();
  });
  CHECK(has(thrown[1], "rank 2 has closed its connection"));
  CHECK(has(thrown[0], "rank 1 failed: rank 2 has closed its connection"));
  CHECK(thrown[2].empty());
}

TEST_CASE("sockets: after a failure nothing of a rank's memory is sent") {
  const bool linked = GENERATE(false, true);
  const auto thrown = eachWorld(2, [&](RankEndpoint &world) {
    linkIf(linked, world);
    if (world.rank() == 1)
      throw environmentError("planted");
    auto data = std::make_unique<std::vector<char>>(64 << 20);
    world.send(data->data(), data->size(), 1, 0, 0);
    try {
      world.waitAllSends();
    } catch (const Error &) {
    }
    world.detach();
    data.reset();
    char byte;
    world.recv(&byte, 1, 1, 0, 0);
  });
  CHECK(thrown[0] == "rank 1 failed: planted");
}

TEST_CASE("sockets: ranks that all wait for what was lost end soon, however long a wait may last") {
  const bool linked = GENERATE(false, true);
  const auto thrown = eachWorld(3, [&](RankEndpoint &world) {
    linkIf(linked, world);
    world.barrier();
    world.setTimeout(24 * 3600); // as while files are loaded
    world.setSilence(1);
    char byte;
    world.recv(&byte, 1, (world.rank() + 1) % 3, 7, 3);
  });
  const std::string lost = "no answer within 1 s from rank 1 while waiting for message 7 of microbatch 3 from rank 1; "
                           "all ranks wait, so what it sent was lost";
  CHECK(thrown == std::vector<std::string>{lost, "rank 0 failed: " + lost, "rank 0 failed: " + lost});
}

TEST_CASE("sockets: ranks that wait for one that works are patient") {
  CHECK(eachWorld(3, [&](RankEndpoint &world) {
          world.setTimeout(24 * 3600);
          world.setSilence(1);
          if (world.rank() == 2)
            std::this_thread::sleep_for(std::chrono::seconds(3));
          world.barrier();
        }) == none(3));
}

namespace {

/// A watch of rank `me` and the other end of its only link, which is rank `peer`'s.
struct Watched {
  Watched(unsigned me, unsigned peer) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
      throw std::runtime_error("no socket pair");
    other = Socket(ends[1]);
    std::vector<Socket> links(me == 0 ? peer + 1 : 1);
    links.back() = Socket(ends[0]);
    watch = std::make_unique<PeerWatch>(me, std::move(links));
  }
  /// The failure after a frame with this text.
  std::string after(uint32_t kind, uint32_t rank, uint32_t status, const std::string &text, size_t announced) {
    const std::array<uint32_t, 4> frame{kind, rank, static_cast<uint32_t>(announced), status};
    sendAll(other, frame.data(), sizeof frame, deadlineIn(5), -1);
    sendAll(other, text.data(), text.size(), deadlineIn(5), -1);
    watch->waitForFailure(5);
    return watch->firstFailure();
  }
  Socket other;
  std::unique_ptr<PeerWatch> watch;
};

} // namespace

TEST_CASE("sockets: heartbeats that no rank can have sent end the job, and texts in them reach no terminal") {
  constexpr uint32_t alive = 1, failure = 2;
  const std::string damaged = "rank 2 failed: its heartbeats are damaged: bytes of them were lost or changed";
  CHECK(Watched(0, 2).after(17, 2, 3, "", 0) == damaged);
  CHECK(Watched(0, 2).after(alive, 1, 3, "", 0) == damaged);
  CHECK(Watched(0, 2).after(alive, 2, 3, "", 1'000'000'000) == damaged);
  CHECK(Watched(0, 2).after(failure, 1, 3, "another's", 9) == damaged);
  CHECK(Watched(0, 2).after(failure, 2, 0, "with status 0", 13) == damaged); // which would be success
  CHECK(Watched(0, 2).after(failure, 2, 3, "a\x1b[31m\n", 7) == "rank 2 failed: a?[31m\n");
  CHECK(Watched(1, 0).after(failure, 5, 3, "forwarded", 9) == "rank 5 failed: forwarded");
}

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
    CHECK(
        eachRank(2, [&](unsigned rank) {
          if (rank == 1)
            for (const char *text : {"GET / HTTP/1.0\r\n\r\n", "\r", "\rCLEAVE\nwho knows what comes now, nobody does"})
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
    CHECK(has(thrown[0], "1 connections were rejected"));
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
      return connectHeartbeats(
          0, 2, oneHost, [&](std::vector<uint8_t> &bytes) { told.set_value(bytes); }, 10);
    });
    const std::vector<uint8_t> said = told.get_future().get();
    CHECK(openToAll().empty() == oneHost);
    CHECK((std::string(said.begin(), said.end()).find(" 127.0.0.1") != std::string::npos));
    const auto links = connectHeartbeats(
        1, 2, oneHost, [&](std::vector<uint8_t> &bytes) { bytes = said; }, 10);
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
  CHECK(has(answerTo(older), "rank 0 speaks protocol 5, 127.0.0.1:"));
  CHECK(has(answerTo(older), "speaks 4: all ranks must run the same program"));
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
