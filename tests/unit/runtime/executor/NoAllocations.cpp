// An iteration allocates nothing in Cleave's own code: counts calls of operator new. Excluded from sanitizer builds,
// which replace operator new.
#include "runtime/comm/LocalWorld.h"
#include "runtime/comm/socket/SocketWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/plan_generated.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

#include <catch2/catch.hpp>

#include <array>
#include <cstdlib>
#include <new>
#include <thread>

using namespace cleave;
using namespace cleave::test;

static thread_local bool counting = false;
static thread_local size_t allocations = 0;

void *operator new(size_t size) {
  allocations += counting;
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

TEST_CASE("executor: an iteration allocates nothing of ours") {
  auto file = seal(twoRanks());
  LocalWorld world(2);
  std::vector<size_t> first(2), second(2);
  runRanks(world, [&](unsigned rank) {
    const auto executor = makeExecutor(file, rank, world[rank], {.device = "cpu"});
    executor->initialise();
    executor->train(1, 0);
    for (auto *counts : {&first, &second}) {
      allocations = 0;
      counting = true;
      executor->train(2, 1);
      counting = false;
      (*counts)[rank] = allocations;
    }
  });
  // Each execution of a oneDNN primitive allocates its argument table: two products per iteration, nothing else.
  CHECK(first == second);
  CHECK(first[0] <= 2 * 8);
  CHECK(first[1] <= 2 * 8);
}

TEST_CASE("sockets: collectives and awaited messages allocate nothing") {
  const uint16_t port = Endpoint::ofSelf(listenOn(0)).port();
  std::vector<size_t> counts(2, 1000);
  const bool linked = GENERATE(false, true);
  const auto run = [&](unsigned rank) {
    TorchEnvironment who;
    who.rank = rank;
    who.size = 2;
    who.address = "127.0.0.1";
    who.port = port;
    SocketWorld world(who, 30);
    const std::vector<uint32_t> both{0, 1};
    Communicator &group = world.group(both);
    if (linked)
      world.link(std::array{MessagePeer{1 - rank, 16000, 16000, 4000}});
    std::vector<float> data(3'000'000, 1), in(1000);
    const auto iteration = [&] {
      for (int32_t microbatch = 0; microbatch < 4; ++microbatch) {
        world.send(data.data(), 4000, 1 - rank, 1, microbatch);
        world.recv(in.data(), 4000, 1 - rank, 1, microbatch);
      }
      world.waitAllSends();
      group.allReduce(data.data(), data.data(), 3'000'000, plan::DType::F32, plan::ReduceKind::Max);
      group.allReduce(data.data(), data.data(), 10, plan::DType::F32, plan::ReduceKind::Max);
      group.barrier();
    };
    for (int i = 0; i < 20; ++i) // until the buffers for early messages are large enough
      iteration();
    allocations = 0;
    counting = true;
    for (int i = 0; i < 20; ++i)
      iteration();
    counting = false;
    counts[rank] = allocations;
    world.barrier();
  };
  std::thread other(run, 1u);
  run(0);
  other.join();
  CHECK(counts[0] + counts[1] <= 2); // a buffer that no earlier iteration needed
}
