// Communicators among threads.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/NcclWorld.h"
#include "tests/conformance/CollectiveChecks.h"

#include <catch2/catch.hpp>

#include <mutex>

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

TEST_CASE("nccl: asking for it names what is missing") {
  try {
    makeNcclWorld(2);
    FAIL("made");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    CHECK(std::string(error.what()).find("no CUDA device") != std::string::npos);
  }
}
