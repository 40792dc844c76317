// Simulated schedules: closed forms from the papers, and properties that hold for any costs.
#include "Random.h"
#include "partitioner/pipeline/Draw.h"
#include "runtime/base/Error.h"

#include <cmath>
#include <random>
#include <string>

using namespace cleave;
using namespace cleave::partitioner;

static std::vector<StageCosts> equal(int64_t stages, StageCosts costs) {
  return std::vector<StageCosts>(size_t(stages), costs);
}

static PipelineTimeline run(const char *name, int64_t ranks, int64_t chunks, int64_t microbatches, StageCosts perRank) {
  const double part = 1 / double(chunks);
  const StageCosts costs{perRank.forward * part, perRank.inputGradient * part,   perRank.weightGradient * part,
                         perRank.send,           perRank.activationBytes * part, perRank.gradientBytes * part};
  const Schedule schedule = namedSchedule(name, ranks, chunks, microbatches);
  const auto stages = equal(ranks * chunks, costs);
  const PipelineTimeline timeline = simulate(schedule, stages);
  CHECK(verify(schedule, stages, timeline) == "");
  return timeline;
}

static double peak(const PipelineTimeline &timeline) {
  double most = 0;
  for (const RankTimeline &rank : timeline.ranks)
    most = std::max(most, rank.peakBytes);
  return most;
}

TEST_CASE("schedules of equal stages take what their closed forms say") {
  const StageCosts one{1, 1, 1, 0, 1, 0}, uneven{1, 1.5, 0.75, 0, 1, 0};
  for (int64_t p : {1, 2, 3, 4, 8})
    for (int64_t m : {p, 2 * p - 1, 2 * p, 4 * p, 6 * p}) {
      CAPTURE(p, m);
      const double work = 3.0 * double(m), filling = double(p - 1);
      for (const char *name : {"gpipe", "1f1b"}) {
        const PipelineTimeline joined = run(name, p, 1, m, one);
        CHECK(joined.step == Approx(work + filling * 3));
        CHECK(joined.bubbleFraction == Approx(filling / (double(m) + filling)));
        CHECK(peak(joined) == double(name == std::string("gpipe") ? m : std::min(p, m)));
        CHECK(run(name, p, 1, m, uneven).step == Approx(3.25 * (double(m) + filling)));
      }
      const PipelineTimeline h1 = run("zb-h1", p, 1, m, one);
      CHECK(h1.step == Approx(work + filling));
      CHECK(h1.bubbleFraction == Approx(filling / (work + filling)));
      CHECK(peak(h1) == double(std::min(p, m)));
      if (m >= 2 * p - 1) {
        const PipelineTimeline h2 = run("zb-h2", p, 1, m, one), v = run("zb-v", p, 2, m, one);
        CHECK(h2.bubbleFraction == Approx(0).margin(1e-12));
        CHECK(h2.step == Approx(work + filling)); // the last rank begins P - 1 forwards late
        CHECK(peak(h2) == double(std::min(2 * p - 1, m)));
        CHECK(v.bubbleFraction == Approx(0).margin(1e-12));
        CHECK(v.step == Approx(work + filling / 2));
        CHECK(peak(v) <= double(p));
      }
      if (m % p == 0)
        for (int64_t chunks : {2, 3, 4}) {
          const PipelineTimeline interleaved = run("interleaved", p, chunks, m, one);
          CHECK(interleaved.step == Approx(work + filling * 3 / double(chunks)));
          CHECK(peak(interleaved) ==
                Approx(double(std::min(2 * (p - 1) + (chunks - 1) * p + 1, m * chunks)) / double(chunks)));
        }
    }
}

TEST_CASE("the bubble is that of the rank with the longest span, which need not be the busiest") {
  const PipelineTimeline timeline = simulate(namedSchedule("zb-h1", 2, 1, 1), {{1, 1, 1, 0, 0, 0}, {6, 6, 6, 0, 0, 0}});
  CHECK(timeline.step == Approx(19));
  CHECK(timeline.ranks[0].span() == Approx(15));
  CHECK(timeline.ranks[1].span() == Approx(18));
  CHECK(timeline.bubbleFraction == Approx(0).margin(1e-12));
  const PipelineTimeline idle = simulate(namedSchedule("1f1b", 2, 1, 1), {{1, 1, 1, 2, 0, 0}, {3, 3, 1, 2, 0, 0}});
  CHECK(idle.ranks[0].busy == Approx(3));
  CHECK(idle.ranks[1].busy == Approx(7));
  CHECK(idle.ranks[0].span() == Approx(14));
  CHECK(idle.bubbleFraction == Approx(11.0 / 14));
}

TEST_CASE("messages take time, one after the other on their way") {
  // Two ranks, one microbatch: 1 + 0.5 + 1 + 2 + 0.5 + 2 + 3; the weight gradient of rank 1 runs meanwhile.
  CHECK(run("zb-h1", 2, 1, 1, {1, 2, 3, 0.5, 0, 0}).step == Approx(10));
  // A joined backward pass sends when it ends: 1 + 0.5 + 1 + (2 + 3) + 0.5 + (2 + 3).
  CHECK(run("1f1b", 2, 1, 1, {1, 2, 3, 0.5, 0, 0}).step == Approx(13));
  // Messages that take longer than work: rank 1 gets the third after 1 + 3 * 4.
  const PipelineTimeline slow = run("gpipe", 2, 1, 3, {1, 1, 1, 4, 0, 0});
  CHECK(slow.ranks[1].works[2].begin == Approx(13));
  CHECK(slow.ranks[0].communication == Approx(12));
  CHECK(slow.ranks[0].messages.size() == 3);
  // Stages on one rank send no messages to each other. In a V, the last stage of the first chunk and the first of the
  // second are on one rank.
  CHECK(run("zb-v", 2, 2, 2, {1, 1, 1, 4, 0, 0}).ranks[1].messages.size() == 4);
  CHECK(run("interleaved", 1, 2, 2, {1, 1, 1, 4, 0, 0}).ranks[0].messages.empty());
}

TEST_CASE("activations are held until the end of the backward pass, gradients from its beginning on") {
  const Schedule schedule{"mine",
                          1,
                          1,
                          2,
                          Placement::Wrapped,
                          BackwardPass::Split,
                          {{{Work::Forward, 0, 0},
                            {Work::InputGradient, 0, 0},
                            {Work::Forward, 0, 1},
                            {Work::InputGradient, 0, 1},
                            {Work::WeightGradient, 0, 1},
                            {Work::WeightGradient, 0, 0}}}};
  CHECK(peakBytes(schedule, {{1, 1, 1, 0, 10, 3}}) == std::vector<double>{26});
  const PipelineTimeline timeline = run("1f1b", 4, 1, 8, {1, 1, 1, 0, 10, 3});
  for (size_t rank = 0; rank < 4; ++rank)
    CHECK(timeline.ranks[rank].peakBytes == double(10 * (4 - rank) + 3));
}

TEST_CASE("a schedule that never ends is refused by name") {
  Schedule schedule = namedSchedule("1f1b", 2, 1, 2);
  std::swap(schedule.order[1][0], schedule.order[1][1]);
  try {
    simulate(schedule, equal(2, {1, 1, 1, 0, 0, 0}));
    FAIL("accepted");
  } catch (const Error &error) {
    CHECK(error.status == Status::Environment);
    CHECK_THAT(error.what(),
               Catch::Contains("never ends: rank 1 cannot begin the backward pass of stage 1, microbatch 0"));
  }
  CHECK(!timesOf(schedule, equal(2, {1, 1, 1, 0, 0, 0})));
}

TEST_CASE("any costs: waits are kept, and no schedule is faster than its lower bound") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const int64_t ranks = 1 + int64_t(random() % 6), microbatches = 1 + int64_t(random() % 12);
    for (const std::string &name : namedSchedules()) {
      CAPTURE(name);
      const int64_t chunks = name == "interleaved" ? 2 + int64_t(random() % 3) : chunksOf(name);
      const Schedule schedule =
          namedSchedule(name, ranks, chunks, name == "interleaved" ? ranks * (1 + microbatches / ranks) : microbatches);
      const auto stages = randomCosts(schedule.stages(), random);
      const PipelineTimeline timeline = simulate(schedule, stages);
      CHECK(verify(schedule, stages, timeline) == "");
      CHECK(timeline.step >= lowestStep(schedule, stages) * (1 - 1e-12));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        double work = 0;
        for (int64_t chunk = 0; chunk < chunks; ++chunk)
          work += stages[size_t(schedule.stageOf(rank, chunk))].work() * double(schedule.microbatches);
        CHECK(timeline.ranks[size_t(rank)].busy == Approx(work));
        CHECK(lowestStep(schedule, stages) >= work * (1 - 1e-12));
      }
      CHECK((timeline.bubbleFraction >= 0 && timeline.bubbleFraction < 1));
    }
  }
}

TEST_CASE("timelines are drawn with a cell for each work, or with letters where they are long") {
  const auto drawn = [](const char *name, int64_t ranks, int64_t chunks, int64_t microbatches, double send = 0) {
    const Schedule schedule = namedSchedule(name, ranks, chunks, microbatches);
    return drawTimeline(schedule, simulate(schedule, equal(ranks * chunks, {1, 1, 1, send, 0, 0})));
  };
  // The drawings in docs/prediction.md and partitioner/schedule/Named.cpp.
  CHECK(drawn("gpipe", 3, 1, 4) == "rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B3 =  B2 =  B1 =  B0 =\n"
                                   "rank 1  .  F0 F1 F2 F3 .  .  .  B3 =  B2 =  B1 =  B0 =  .  .\n"
                                   "rank 2  .  .  F0 F1 F2 F3 B3 =  B2 =  B1 =  B0 =  .  .  .  .\n"
                                   "1 ms a cell; F forward, B backward\n");
  CHECK(drawn("1f1b", 3, 1, 5) == "rank 0  F0 F1 F2 .  .  .  .  B0 =  F3 B1 =  F4 B2 =  .  B3 =  .  B4 =\n"
                                  "rank 1  .  F0 F1 .  .  B0 =  F2 B1 =  F3 B2 =  F4 B3 =  .  B4 =  .  .\n"
                                  "rank 2  .  .  F0 B0 =  F1 B1 =  F2 B2 =  F3 B3 =  F4 B4 =  .  .  .  .\n"
                                  "1 ms a cell; F forward, B backward\n");
  CHECK(drawn("interleaved", 2, 2, 4) ==
        "rank 0  F0 F1 f0 f1 F2 .  b0 =  F3 b1 =  f2 B0 =  f3 B1 =  .  b2 =  .  b3 =  B2 =  B3 =\n"
        "rank 1  .  F0 F1 f0 b0 =  f1 b1 =  F2 B0 =  F3 B1 =  f2 b2 =  f3 b3 =  B2 =  B3 =  .  .\n"
        "1 ms a cell; F forward, B backward; lower case: later stages\n");
  CHECK(drawn("zb-h1", 3, 1, 5) == "rank 0  F0 F1 F2 .  .  B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4\n"
                                   "rank 1  .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4\n"
                                   "rank 2  .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4\n"
                                   "1 ms a cell; F forward, B input gradient, W weight gradient\n");
  CHECK(drawn("zb-h2", 3, 1, 6) == "rank 0  F0 F1 F2 F3 F4 B0 W0 F5 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 .  .\n"
                                   "rank 1  .  F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 W1 B4 W2 B5 W3 W4 W5 .\n"
                                   "rank 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 F5 B5 W1 W2 W3 W4 W5\n"
                                   "1 ms a cell; F forward, B input gradient, W weight gradient\n");
  CHECK(drawn("zb-v", 2, 2, 4) ==
        "rank 0  F0 F1 F2 f0 b0 w0 f1 b1 w1 F3 B0 W0 f2 b2 w2 B1 W1 f3 b3 w3 B2 W2 B3 W3 .\n"
        "rank 1  .  F0 f0 F1 f1 b0 w0 F2 B0 W0 f2 b1 w1 F3 B1 W1 f3 b2 w2 B2 b3 B3 W2 w3 W3\n"
        "1 ms a cell; F forward, B input gradient, W weight gradient; lower case: later stages\n");
  for (const char *name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (int64_t microbatches : {4, 100, 2000}) {
      const std::string text = drawn(name, 50, 1, microbatches, 0.3);
      size_t lines = 0;
      for (size_t begin = 0; begin < text.size(); ++lines) {
        const size_t end = text.find('\n', begin);
        CHECK(end - begin <= 100);
        begin = end + 1;
      }
      CHECK(lines == 42); // 40 ranks, "... 10 more ranks", the meaning of a column
    }
}

TEST_CASE("messages that leave a node share a link") {
  const int64_t microbatches = 4;
  const Schedule schedule = namedSchedule("1f1b", 3, 1, microbatches);
  const auto stepOf = [&](const std::vector<StageCosts> &stages, const SharedLinks &shared) {
    double end = 0;
    const auto times = timesOf(schedule, stages, shared);
    for (const auto &spans : times.value())
      end = std::max(end, spans.back().end);
    return end;
  };
  const std::vector<StageCosts> stages = equal(3, {0, 0, 0, 10, 0, 0}), slow = equal(3, {30, 30, 30, 10, 0, 0});
  const auto shared = [](std::map<std::pair<int64_t, int64_t>, double> shares) {
    SharedLinks links;
    for (const auto &[ranks, share] : shares)
      links.add(ranks, {0, share});
    return links;
  };
  const SharedLinks none, unused = shared({{{2, 2}, 1.0}});
  CHECK(stepOf(stages, unused) == stepOf(stages, none));
  CHECK(stepOf(slow, unused) == stepOf(slow, none));
  // The middle rank sends 4 messages of 10 to each of its neighbours over one link, the first one after 10.
  const SharedLinks middle = shared({{{1, 0}, 1.0}, {{1, 2}, 1.0}});
  CHECK(stepOf(stages, middle) >= 10 + 2 * 10 * microbatches);
  CHECK(stepOf(stages, middle) > stepOf(stages, none));
  // Each message occupies the link for twice its time: other replicas send at once.
  const SharedLinks twice = shared({{{0, 1}, 2.0}});
  CHECK(stepOf(stages, twice) >= 2 * 10 * microbatches);
  // If the schedule leaves them more time than they need, nothing waits.
  CHECK(stepOf(slow, middle) == stepOf(slow, none));
}

TEST_CASE("a rank has few places for messages") {
  // The first rank needs 10 for a gradient that the second one makes in 1 and sends in 1: the second one may be ahead
  // by the gradient that the first works with, the one that has arrived, and the two that it keeps itself.
  const int64_t microbatches = 6;
  const Schedule schedule = namedSchedule("gpipe", 2, 1, microbatches);
  std::vector<StageCosts> stages = equal(2, {0, 0, 0, 1, 0, 0});
  stages[0].inputGradient = 10, stages[1].inputGradient = 1;
  SharedLinks links;
  links.add({0, 1}, {0, 1}), links.add({1, 0}, {1, 1});
  const auto gradients = [&] {
    const auto times = timesOf(schedule, stages, links).value();
    return std::pair(std::vector(times[0].end() - microbatches, times[0].end()),
                     std::vector(times[1].end() - microbatches, times[1].end()));
  };
  const auto [first, second] = gradients();
  CHECK(second.back().end == second.front().begin + 6);
  links.oneAhead = true;
  const auto [slow, late] = gradients();
  CHECK(slow.front().begin == first.front().begin);
  CHECK(slow.back().end == first.back().end);
  for (size_t i = 4; i < late.size(); ++i) // the third message moves when the first rank begins with the second one
    CHECK(late[i].begin >= slow[i - 3].begin + 1);
  CHECK(late[3].end < slow[1].begin);

  std::mt19937 random(3);
  const auto draw = [&](int most) { return double(random() % unsigned(most)); };
  for (const char *name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"})
    for (int round = 0; round < 20; ++round) {
      const int64_t ranks = 2 + int64_t(random() % 3),
                    chunks = std::string(name) == "interleaved" || std::string(name) == "zb-v" ? 2 : 1;
      const Schedule drawn = namedSchedule(name, ranks, chunks, ranks * 2);
      std::vector<StageCosts> costs;
      for (int64_t s = 0; s < drawn.stages(); ++s)
        costs.push_back({draw(9), draw(9), draw(9), draw(9), 0, 0});
      SharedLinks some;
      for (int64_t rank = 0; rank < ranks; ++rank)
        some.add({rank, (rank + 1) % ranks}, {0, 0.7}), some.add({(rank + 1) % ranks, rank}, {1, 0.7});
      const auto free = timesOf(drawn, costs, noSharedLinks), shared = timesOf(drawn, costs, some);
      some.oneAhead = true;
      const auto few = timesOf(drawn, costs, some);
      REQUIRE((free && shared && few));
      for (size_t rank = 0; rank < free->size(); ++rank)
        for (size_t w = 0; w < (*free)[rank].size(); ++w) {
          CHECK((*free)[rank][w].begin <= (*shared)[rank][w].begin + 1e-9);
          CHECK((*free)[rank][w].begin <= (*few)[rank][w].begin + 1e-9);
        }
    }
}

TEST_CASE("messages back may take another time") {
  std::vector<StageCosts> stages = equal(2, {1, 1, 1, 5, 0, 0});
  stages[1].sendBack = 0;
  CHECK(simulate(namedSchedule("1f1b", 2, 1, 1), stages).step == 1 + 5 + 3 + 2);
}
