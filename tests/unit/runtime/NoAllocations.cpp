// An iteration allocates nothing of ours: operator new is counted. Sanitizers bring an operator new of their own, so
// this file is left out of their builds.
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "tests/unit/runtime/TwoRanks.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <new>

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
    Executor executor(file, rank, world[rank], {.device = "cpu"});
    executor.initialise();
    executor.train(1, 0);
    for (auto *counts : {&first, &second}) {
      allocations = 0;
      counting = true;
      executor.train(2, 1);
      counting = false;
      (*counts)[rank] = allocations;
    }
  });
  // Each execution of a oneDNN primitive allocates its argument table: two products an iteration, nothing else.
  CHECK(first == second);
  CHECK(first[0] <= 2 * 8);
  CHECK(first[1] <= 2 * 8);
}
