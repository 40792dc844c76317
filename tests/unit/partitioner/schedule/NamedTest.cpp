// The published schedules: their orders, the microbatches held by each rank, sizes that they reject, and the defects
// that check() finds.
#include "partitioner/schedule/Named.h"
#include "partitioner/schedule/Schedule.h"
#include "runtime/base/Error.h"
#include "runtime/base/Schedules.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cleave;
using namespace cleave::partitioner;

static std::string text(const std::vector<ScheduledWork> &order, int64_t ranks) {
  std::string line;
  for (const ScheduledWork &work : order)
    line += shortName(work) + (work.stage >= ranks ? "' " : " ");
  return line;
}

/// The largest number of forwards on a rank whose backward pass has not ended.
static int64_t mostHeld(const std::vector<ScheduledWork> &order) {
  int64_t held = 0, most = 0;
  for (const ScheduledWork &work : order) {
    held += work.work == Work::Forward ? 1 : work.work == Work::InputGradient ? 0 : -1;
    most = std::max(most, held);
  }
  return most;
}

static int64_t mostHeld(const Schedule &schedule) {
  int64_t most = 0;
  for (const auto &order : schedule.order)
    most = std::max(most, mostHeld(order));
  return most;
}

TEST_CASE("the named schedules have the orders of their papers") {
  const Schedule h1 = namedSchedule("zb-h1", 2, 1, 3);
  CHECK(text(h1.order[0], 2) == "F0 F1 B0 W0 F2 B1 W1 B2 W2 ");
  CHECK(text(h1.order[1], 2) == "F0 B0 F1 B1 W0 F2 B2 W1 W2 ");
  const Schedule h2 = namedSchedule("zb-h2", 2, 1, 4);
  CHECK(text(h2.order[0], 2) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 ");
  CHECK(text(h2.order[1], 2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 ");
  const Schedule interleaved = namedSchedule("interleaved", 2, 2, 2);
  CHECK(text(interleaved.order[0], 2) == "F0 F1 F0' F1' B0' B1' B0 B1 ");
  CHECK(text(interleaved.order[1], 2) == "F0 F1 F0' B0' F1' B1' B0 B1 ");
  const Schedule v = namedSchedule("zb-v", 2, 2, 3);
  CHECK(text(v.order[0], 2) == "F0 F1 F2 F0' B0' W0' F1' B1' W1' B0 W0 F2' B2' W2' B1 W1 B2 W2 ");
  CHECK(text(v.order[1], 2) == "F0 F0' F1 F1' B0' W0' F2 B0 W0 F2' B1' W1' B1 B2' B2 W1 W2' W2 ");
}

TEST_CASE("schedules of any size run, and hold what their papers say") {
  for (int64_t p : {1, 2, 3, 4, 8})
    for (int64_t m : {1, 2, 3, 4, 8, 24}) {
      CAPTURE(p, m);
      for (const char *name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        CHECK(check(namedSchedule(name, p, 1, m)) == std::nullopt);
      CHECK(mostHeld(namedSchedule("gpipe", p, 1, m)) == m);
      const Schedule alternating = namedSchedule("1f1b", p, 1, m);
      for (int64_t rank = 0; rank < p; ++rank)
        CHECK(mostHeld(alternating.order[size_t(rank)]) == std::min(p - rank, m));
      CHECK(mostHeld(namedSchedule("zb-h1", p, 1, m)) == std::min(p, m));
      CHECK(mostHeld(namedSchedule("zb-h2", p, 1, m)) == std::min(2 * p - 1, m));
      const Schedule v = namedSchedule("zb-v", p, 2, m);
      CHECK(check(v) == std::nullopt);
      CHECK(mostHeld(v) <= 2 * p);
      for (int64_t chunks : {2, 3, 5})
        if (m % p == 0) {
          const Schedule interleaved = namedSchedule("interleaved", p, chunks, m);
          CHECK(check(interleaved) == std::nullopt);
          CHECK(mostHeld(interleaved) == std::min(2 * (p - 1) + (chunks - 1) * p + 1, m * chunks));
        }
    }
}

TEST_CASE("stages lie on ranks in turn, or in a V") {
  Schedule schedule{"", 3, 3, 1};
  for (int64_t stage = 0; stage < 9; ++stage)
    CHECK(schedule.rankOf(stage) == stage % 3);
  schedule.placement = Placement::V;
  const int64_t ranks[] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
  for (int64_t stage = 0; stage < 9; ++stage) {
    CHECK(schedule.rankOf(stage) == ranks[stage]);
    CHECK(schedule.stageOf(ranks[stage], stage / 3) == stage);
  }
}

TEST_CASE("plans get the same orders as segments") {
  for (auto [name, chunks] : {std::pair("gpipe", 1), {"1f1b", 1}, {"interleaved", 3}, {"zb-h2", 1}, {"zb-v", 2}}) {
    const Schedule schedule = namedSchedule(name, 3, chunks, 6);
    const auto items = itemsOf(schedule);
    REQUIRE(items.size() == 3);
    for (size_t rank = 0; rank < 3; ++rank) {
      REQUIRE(items[rank].size() == schedule.order[rank].size());
      for (size_t i = 0; i < items[rank].size(); ++i) {
        static const SegmentKind kinds[] = {SegmentKind::Forward, SegmentKind::Backward, SegmentKind::InputGradient,
                                            SegmentKind::WeightGradient};
        CHECK(items[rank][i].segment.kind == kinds[size_t(schedule.order[rank][i].work)]);
        CHECK(schedule.stageOf(int64_t(rank), items[rank][i].segment.chunk) == schedule.order[rank][i].stage);
        CHECK(items[rank][i].microbatch == schedule.order[rank][i].microbatch);
      }
    }
  }
}

TEST_CASE("orders go through their text") {
  for (auto [name, chunks] : {std::pair("gpipe", 1), {"1f1b", 1}, {"interleaved", 3}, {"zb-h1", 1}}) {
    const Schedule schedule = namedSchedule(name, 3, chunks, 6);
    Schedule read{name, 3, chunks, 6};
    for (int64_t rank = 0; rank < 3; ++rank)
      addOrder(read, orderText(schedule, rank));
    CHECK(read.order == schedule.order);
    CHECK(read.backward == schedule.backward);
  }
  CHECK(orderText(namedSchedule("interleaved", 2, 2, 2), 0) == "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
  for (const char *text : {"F", "G0", "F-1", "F0.2", "F0.-1", "F0.", "F0x", "F99999999999999999999", "B0 f1"}) {
    CAPTURE(text);
    Schedule schedule{"auto", 2, 2, 2};
    CHECK_THROWS_WITH(addOrder(schedule, text), Catch::Contains("of rank 0 is not a work"));
  }
}

TEST_CASE("microbatches of a named schedule ascend unless plans are checked for the opposite") {
  for (const std::string &name : namedSchedules())
    CHECK(descendingWork(namedSchedule(name, 2, chunksOf(name) ? chunksOf(name) : 2, 4)).has_value() ==
          (name == descendingSchedule));
}

TEST_CASE("microbatches that do not ascend are found") {
  CHECK(!descendingWork(namedSchedule("1f1b", 3, 1, 5)));
  CHECK(!descendingWork(namedSchedule("interleaved", 2, 3, 4)));
  CHECK(descendingWork(namedSchedule("gpipe", 2, 1, 3)) == ScheduledWork{Work::Backward, 0, 1});
  CHECK(!descendingWork(ascending(namedSchedule("gpipe", 2, 1, 3))));
}

TEST_CASE("sizes that a schedule cannot carry are refused by rule and value") {
  using Catch::Contains;
  CHECK_THROWS_WITH(namedSchedule("interleaved", 4, 2, 6),
                    Contains("multiple") && Contains("6 microbatches and 4 ranks"));
  CHECK_THROWS_WITH(namedSchedule("interleaved", 4, 1, 8), Contains("at least 2, found 1"));
  CHECK_THROWS_WITH(namedSchedule("zb-v", 4, 3, 8), Contains("virtual") && Contains("must be 2, found 3"));
  CHECK_THROWS_WITH(namedSchedule("1f1b", 4, 2, 8), Contains("must be 1, found 2"));
  CHECK_THROWS_WITH(namedSchedule("gpipe", 0, 1, 8), Contains("stages must be at least 1, found 0"));
  CHECK_THROWS_WITH(namedSchedule("gpipe", 1, 1, -3), Contains("microbatches must be at least 1, found -3"));
  CHECK_THROWS_WITH(namedSchedule("zb-h3", 1, 1, 1), Contains("zb-h3") && Contains("interleaved, zb-h1, zb-h2, zb-v"));
  try {
    namedSchedule("zb-v", 4, 1, 8);
    FAIL("accepted");
  } catch (const Error &error) {
    CHECK(error.status == Status::User);
  }
}

TEST_CASE("the checker finds works that are lost, doubled or misplaced, and circles of waits") {
  const auto defectAfter = [](auto change, const char *name = "1f1b") {
    Schedule schedule = namedSchedule(name, 2, 1, 3);
    change(schedule);
    return check(schedule).value_or("none");
  };
  using Catch::Contains;
  CHECK(defectAfter([](Schedule &) {}) == "none");
  CHECK_THAT(defectAfter([](Schedule &s) { s.order[1].pop_back(); }),
             Contains("rank 1 must have every work") && Contains("found 5"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.order[1].back() = s.order[1].front(); }),
             Contains("rank 1 has the forward of stage 1, microbatch 0 twice"));
  CHECK_THAT(defectAfter([](Schedule &s) { std::swap(s.order[0], s.order[1]); }), Contains("that stage is on rank 1"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.order[0][0].microbatch = 3; }), Contains("3 microbatches"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.order[0][0].stage = -1; }), Contains("stage -1"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.order.pop_back(); }), Contains("each of its 2 ranks, found 1"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.chunks = 0; }), Contains("chunks from 1, found 0"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.backward = BackwardPass::Split; }),
             Contains("the backward pass of stage 0, microbatch 0, but the schedule's backward pass is split"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.backward = BackwardPass::Joined; }, "zb-h1"),
             Contains("the input gradient of stage 0, microbatch 0, but the schedule's backward pass is joined"));
  CHECK_THAT(defectAfter([](Schedule &s) { s.order[0].pop_back(); }, "zb-h1"),
             Contains("every work of its stages once, 9 in all, found 8"));
  // A weight gradient before its input gradient.
  CHECK_THAT(defectAfter([](Schedule &s) { std::swap(s.order[1][1], s.order[1][4]); }, "zb-h1"),
             Contains("never ends") &&
                 Contains("cannot begin the weight gradient of stage 1, microbatch 0 before the input "
                          "gradient of stage 1, microbatch 0"));
  // A deadlock: rank 0 waits for a gradient of microbatch 0 before its forward of microbatch 1, and rank 1 waits for
  // that forward.
  const std::string circle = defectAfter([](Schedule &s) {
    std::swap(s.order[0][1], s.order[0][2]);
    std::swap(s.order[1][1], s.order[1][2]);
  });
  CHECK_THAT(circle, Contains("rank 0 cannot begin the backward pass of stage 0, microbatch 0") &&
                         Contains("rank 1 cannot begin the forward of stage 1, microbatch 1"));
}
