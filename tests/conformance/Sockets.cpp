// Communicators over sockets: each thread is a rank with its own world, as a process would be. SocketProcesses.cpp has
// the cases with dying processes, SocketMeetings.cpp how ranks meet.
#include "runtime/base/Error.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "tests/conformance/CollectiveChecks.h"
#include "tests/conformance/SocketRanks.h"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace cleave;
using namespace cleave::test;

namespace {

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
