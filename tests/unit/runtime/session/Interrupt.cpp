// Ranks in separate processes agree on where to stop. Here each rank is a thread with its own StopAgreement.
#include "runtime/session/Interrupt.h"
#include "runtime/comm/LocalWorld.h"

#include <catch2/catch.hpp>

#include <array>
#include <csignal>
#include <thread>

using namespace cleave;

namespace {

struct Stopped {
  int64_t steps = 0; ///< number of steps of the rank
  std::optional<int64_t> agreed;
};

/// Three ranks, each slower than the previous one. Rank `interrupted` gets a signal during step `at` (0: no rank does).
std::array<Stopped, 3> run(unsigned interrupted, int64_t at, int64_t steps) {
  const InterruptGuard guard;
  LocalWorld world(3);
  std::array<Stopped, 3> all;
  runRanks(world, [&](unsigned rank) {
    const std::array<uint32_t, 3> ranks{0, 1, 2};
    StopAgreement stop;
    stop.among(world[rank].group(ranks));
    int64_t done = 0;
    while (done < steps && stop.mayBegin(done + 1)) {
      if (++done == at && rank == interrupted)
        std::raise(SIGINT);
      std::this_thread::sleep_for(std::chrono::microseconds(200 * rank));
    }
    all[rank] = {done, stop.stoppedAfter()};
  });
  return all;
}

} // namespace

TEST_CASE("processes stop after the same step", "[session]") {
  for (unsigned interrupted : {0u, 2u})
    for (int64_t at : {1, 2, 40}) {
      const auto all = run(interrupted, at, 1 << 20);
      INFO("rank " << interrupted << " at step " << at);
      for (const Stopped &rank : all) {
        CHECK(rank.steps == all[0].steps);
        CHECK(rank.agreed == all[0].steps);
      }
      CHECK(all[0].steps >= at);
      CHECK(all[0].steps < 100000); // the ranks notice the signal, and in time
    }
}

TEST_CASE("checkpoints within an epoch do not delay an interrupt", "[session]") {
  const InterruptGuard guard;
  LocalWorld world(2);
  std::array<int64_t, 2> steps{};
  runRanks(world, [&](unsigned rank) {
    const std::array<uint32_t, 2> ranks{0, 1};
    StopAgreement stop;
    stop.among(world[rank].group(ranks));
    int64_t done = 0;
    while (done < 100 && stop.mayBegin(done + 1)) {
      if (++done == 7 && rank == 1)
        std::raise(SIGTERM);
      if (done % 2 == 0) { // a checkpoint, which takes longer than hundreds of steps
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stop.askSoon();
      }
    }
    steps[rank] = done;
  });
  CHECK(steps[0] == steps[1]);
  CHECK(steps[0] >= 7);
  CHECK(steps[0] <= 8);
}

TEST_CASE("processes that nobody interrupts do all their steps", "[session]") {
  for (const Stopped &rank : run(0, 0, 300)) {
    CHECK(rank.steps == 300);
    CHECK_FALSE(rank.agreed);
  }
}

TEST_CASE("signals that follow at once are one interrupt", "[session]") {
  const InterruptGuard guard;
  CHECK_FALSE(InterruptGuard::interrupted());
  std::raise(SIGINT);
  std::raise(SIGTERM); // a second signal must not end this program
  CHECK(InterruptGuard::interrupted());
}
