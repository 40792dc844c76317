// Intervals between checkpoints: their text, and the agreement of ranks of different speed.
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/session/CheckpointInterval.h"

#include <catch2/catch.hpp>

#include <array>
#include <set>
#include <thread>

using namespace cleave;
using Catch::Matchers::Contains;

TEST_CASE("intervals are steps or times", "[session]") {
  CHECK(CheckpointInterval::parse("500").steps == 500);
  CHECK(CheckpointInterval::parse("500").seconds == 0);
  CHECK(CheckpointInterval::parse("90s").seconds == 90);
  CHECK(CheckpointInterval::parse("30m").seconds == 1800);
  CHECK(CheckpointInterval::parse("1.5h").seconds == 5400);
  CHECK(CheckpointInterval::parse("2h").steps == 0);
  CHECK(CheckpointInterval::parse("0.001s").isSet());
  CHECK_FALSE(CheckpointInterval::parse("").isSet());
  for (const char *wrong : {"0",
                            "-1",
                            "1.5",
                            "s",
                            "m",
                            "0s",
                            "-3m",
                            "30 m",
                            "30min",
                            "30M",
                            "1e3s",
                            "1e400h",
                            "nans",
                            "infs",
                            "9007199254740992",
                            "99999999999999999999",
                            "99999999999999999999h",
                            "+5",
                            " 5",
                            "5 ",
                            "0x5"})
    CHECK_THROWS_WITH(CheckpointInterval::parse(wrong), Contains(wrong) && Contains("30m"));
}

namespace {

/// Three ranks, each slower than the one before, until the first has worked for some time. The steps after which each
/// wrote a checkpoint.
std::array<std::set<int64_t>, 3> writtenAfter(const CheckpointInterval &interval, int64_t steps) {
  std::array<std::set<int64_t>, 3> written;
  LocalWorld world(3);
  runRanks(world, [&](unsigned rank) {
    CheckpointTimer timer(interval, world[rank]);
    for (int64_t step = 1; step <= steps; ++step) {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (1 + rank)));
      if (timer.due(step)) {
        written[rank].insert(step);
        world[rank].barrier(); // a rank that does not take part would wait for ever
        timer.restart();
      }
    }
  });
  return written;
}

} // namespace

TEST_CASE("all ranks write checkpoints after the same steps", "[session]") {
  const auto steps = writtenAfter({7, 0}, 50);
  CHECK(steps[0] == std::set<int64_t>{7, 14, 21, 28, 35, 42, 49});
  const auto times = writtenAfter({0, 0.05}, 1000);
  CHECK(times[0].size() >= 2);
  CHECK(times[0].size() < 100);
  for (const auto &each : {steps, times})
    for (unsigned rank : {1u, 2u})
      CHECK(each[rank] == each[0]);
  CHECK(writtenAfter({0, 1000}, 50)[0].empty());
  CHECK(writtenAfter({}, 50)[0].empty());
}
