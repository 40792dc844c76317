// Tests communicators among threads.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/Reduce.h"
#include "tests/conformance/CollectiveChecks.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <mutex>
#include <pthread.h>
#include <thread>

using namespace cleave;

TEST_CASE("local: collectives and messages, 1 to 5 ranks") {
  for (unsigned ranks = 1; ranks <= 5; ++ranks) {
    LocalWorld world(ranks);
    std::mutex mutex;
    std::vector<std::string> errors;
    runRanks(world, [&](unsigned rank) {
      auto found = test::checkCollectives(world[rank]);
      auto more = test::checkMessages(world[rank]);
      std::lock_guard lock(mutex);
      errors.insert(errors.end(), found.begin(), found.end());
      errors.insert(errors.end(), more.begin(), more.end());
    });
    INFO(ranks << " ranks");
    CHECK(errors == std::vector<std::string>{});
  }
}

TEST_CASE("local: several threads per rank give the same sums") {
  LocalWorld world(2);
  runRanks(world, [&](unsigned rank) {
    world[rank].setThreads(2);
    std::vector<uint32_t> all{0, 1};
    std::vector<float> data(1 << 20, static_cast<float>(rank + 1));
    world[rank].group(all).allReduce(data.data(), data.data(), 1 << 20, plan::DType::F32, plan::ReduceKind::Sum);
    for (float x : data)
      if (x != 3)
        throw environmentError("wrong sum");
  });
}

TEST_CASE("local: one rank's failure ends the others and is what is thrown") {
  LocalWorld world(3);
  std::mutex mutex;
  std::vector<std::string> others;
  auto run = [&] {
    runRanks(world, [&](unsigned rank) {
      try {
        if (rank == 1)
          throw userError("planted");
        if (rank == 0)
          world[rank].barrier();
        char byte;
        world[rank].recv(&byte, 1, 1, 0, 0);
      } catch (const Error &error) {
        std::lock_guard lock(mutex);
        others.push_back(error.what());
        throw;
      }
    });
  };
  try {
    run();
    FAIL("no exception");
  } catch (const Error &error) {
    CHECK(std::string(error.what()) == "planted");
    CHECK(error.status == Status::User);
  }
  CHECK(others.size() == 3);
  CHECK(std::count(others.begin(), others.end(), "rank 1 failed: planted") == 2);
  CHECK(world.failure() == "rank 1 failed: planted");
}

TEST_CASE("local: a rank whose thread does not start ends the others") {
  constexpr unsigned ranks = 1000;
  pthread_attr_t usual, huge;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  pthread_attr_init(&huge);
  REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0); // larger than the address space
  LocalWorld world(ranks);
  try {
    runRanks(world, [&](unsigned rank) {
      pthread_setattr_default_np(&huge); // applies to threads started later
      char byte;
      world[rank].recv(&byte, 1, (rank + 1) % ranks, 0, 0);
    });
    FAIL("no exception");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    CHECK(std::string(error.what()).find("no thread can be started for rank ") == 0);
    CHECK(std::string(error.what()).find(" of 1000") != std::string::npos);
  }
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

TEST_CASE("local: after a failure nobody reads a message whose sender has gone") {
  LocalWorld world(3);
  std::atomic<bool> gone{false};
  std::atomic<int> refused{0};
  auto expectFailure = [&](auto wait) {
    try {
      wait();
    } catch (const Error &) {
      ++refused;
    }
  };
  CHECK_THROWS_AS(runRanks(world,
                           [&](unsigned rank) {
                             int data[4] = {};
                             if (rank == 2)
                               throw environmentError("planted");
                             if (rank == 0) {
                               world[rank].send(data, sizeof data, 1, 0, 0);
                               world[rank].send(data, sizeof data, 1, 1, 0);
                               expectFailure([&] { world[rank].waitSend(0, 0); });
                               expectFailure([&] { world[rank].waitAllSends(); });
                               world[rank].detach();
                               gone = true;
                               return;
                             }
                             while (!gone) // a late receiver
                               std::this_thread::yield();
                             for (uint32_t tag : {0u, 1u})
                               expectFailure([&] { world[rank].recv(data, sizeof data, 0, tag, 0); });
                           }),
                  Error);
  CHECK(refused == 4);
}

TEST_CASE("mpi: what is exchanged at once fits its buffer, however many members") {
  for (int64_t room : {int64_t{1} << 20, int64_t{1} << 19, int64_t{1} << 22})
    for (int64_t members : {1, 2, 3, 7, 1000, 1024, 1025, 1500, 4097, 100'000}) {
      const int64_t block = exchangeBlock(room, members);
      INFO(room << " elements, " << members << " members");
      CHECK(block > 0);
      for (int64_t count : {block, block - 1, block / 2 + 1})
        CHECK((count + members - 1) / members * members <= room);
    }
  CHECK(exchangeBlock(10, 64) == 64);
}

TEST_CASE("local: waits have a deadline that names what was awaited") {
  LocalWorld world(2);
  world[0].setTimeout(0.2);
  try {
    runRanks(world, [&](unsigned rank) {
      char byte;
      if (rank == 0)
        world[rank].recv(&byte, 1, 1, 7, 3);
    });
    FAIL("no exception");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    CHECK(std::string(error.what()).find("message 7 of microbatch 3 from rank 1") != std::string::npos);
  }
}

TEST_CASE("local: a message of another size is refused") {
  LocalWorld world(2);
  CHECK_THROWS_AS(runRanks(world,
                           [&](unsigned rank) {
                             int data[2] = {};
                             if (rank == 0)
                               world[rank].send(data, 8, 1, 0, 0);
                             else
                               world[rank].recv(data, 4, 0, 0, 0);
                             world[rank].waitAllSends();
                           }),
                  Error);
}
