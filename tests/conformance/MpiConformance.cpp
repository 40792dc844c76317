// The communicator checks on MPI processes, started by mpirun. Prints one line per failure; exit status 1 on failure.
// `plain`: without shared memory.
#include "runtime/base/Error.h"
#include "runtime/comm/MpiWorld.h"
#include "tests/conformance/CollectiveChecks.h"

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <unistd.h>

using namespace cleave;

static Communicator &everyone(RankEndpoint &world) {
  std::vector<uint32_t> all(world.size());
  std::iota(all.begin(), all.end(), 0u);
  return world.group(all);
}

/// Runs all-reduces until something fails.
static void reduceForEver(Communicator &group) {
  std::vector<float> data(100'000, 1);
  for (;;)
    group.allReduce(data.data(), data.data(), 100'000, plan::DType::F32, plan::ReduceKind::Max);
}

/// Rank 0 fails; a wait on the other ranks must report this.
static int failingRank(RankEndpoint &world) {
  Communicator &all = everyone(world);
  test::linkAll(world, 0);
  world.setTimeout(60);
  try {
    if (world.rank() == 0)
      throw environmentError("planted failure");
    if (world.rank() == 1)
      reduceForEver(all);
    char byte;
    world.recv(&byte, 1, 0, 1, 0);
  } catch (const Error &error) {
    if (world.rank() == 0) {
      world.abort(error.what());
      return 0;
    }
    bool told = std::string(error.what()).find("rank 0 failed: planted failure") != std::string::npos;
    std::fprintf(stderr, "rank %u: %s\n", world.rank(), error.what());
    return told ? 0 : 1;
  }
  return 1;
}

/// The last rank does not come to a barrier or a collective; the others name it.
static int lateRank(RankEndpoint &world) {
  Communicator &all = everyone(world);
  world.barrier();
  world.setTimeout(1.5);
  try {
    if (world.rank() + 1 == world.size())
      for (;;) {
        world.checkPeers();
        ::usleep(10000);
      }
    if (world.rank() == 0)
      world.barrier();
    reduceForEver(all);
  } catch (const Error &error) {
    const std::string text = error.what(),
                      last = "from rank " + std::to_string(world.size() - 1) + " while waiting for ";
    world.abort(text, error.status);
    std::fprintf(stderr, "rank %u: %s\n", world.rank(), error.what());
    return text.find(last) != std::string::npos ? 0 : 1;
  }
  return 1;
}

int main(int argc, char **argv) {
  auto world = makeMpiWorld(0);
  if (argc > 1 && !std::strcmp(argv[1], "late"))
    return lateRank(*world);
  if (argc > 1 && !std::strcmp(argv[1], "failure"))
    return failingRank(*world);
  const bool plain = argc > 1 && !std::strcmp(argv[1], "plain");
  std::optional<test::NoSegments> refuse;
  if (plain)
    refuse.emplace();
  auto errors = test::checkCollectives(*world);
  const unsigned ofGroups = test::sharedSegments(), others = world->size() - 1;
  test::linkAll(*world, 0);
  if (const unsigned all = test::sharedSegments();
      (ofGroups > 0) != (!plain && others > 0) || all - ofGroups != (plain ? 0 : others))
    errors.push_back("shared segments: " + std::to_string(ofGroups) + " and then " + std::to_string(all));
  auto more = test::checkMessages(*world);
  errors.insert(errors.end(), more.begin(), more.end());
  if (world->size() > 1)
    try { // a plan for another number of ranks
      makeMpiWorld(world->size() + 1);
      errors.push_back("a plan for another number of ranks was taken");
    } catch (const Error &error) {
      if (error.status != Status::User)
        errors.push_back(error.what());
    }
  world->checkMessage(1, 8000);
  try { // refused before it is sent
    world->checkMessage(1, 8191);
    errors.push_back("a message that mpi cannot name was taken");
  } catch (const Error &error) {
    if (error.status != Status::Environment)
      errors.push_back(error.what());
  }
  for (const std::string &error : errors)
    std::fprintf(stderr, "%s\n", error.c_str());
  return errors.empty() ? 0 : 1;
}
