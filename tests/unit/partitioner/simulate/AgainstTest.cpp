// Hand-written traces of runs: what is read, which errors occur, and the comparison with a prediction.
#include "partitioner/simulate/Against.h"

#include "runtime/base/Error.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using test::ProgramWriter;
using Json = nlohmann::ordered_json;

namespace {

Cluster cluster() {
  return Cluster::parse("name = \"c\"\n[devices.core]\nbackend = \"cpu\"\nmemory_gib = 8\nmemory_gb_per_s = 20\n"
                        "peak_tflops = { fp32 = 0.1 }\n[[nodes]]\ndevices = { core = 2 }\n"
                        "inside = { gb_per_s = 10, latency_us = 1 }\n",
                        "c.toml");
}

/// Two ranks. Rank 0: copy, send. Rank 1: receive, copy. Then both reduce.
plan::PlanT twoRanks() {
  plan::PlanT plan = test::makePlan(1, 1, 2);
  plan.microbatches = 2;
  for (const uint32_t r : {0u, 1u}) {
    ProgramWriter p;
    const uint32_t a = p.slot("a", plan::DType::F32, {1 << 20}), b = p.slot("b", plan::DType::F32, {1 << 20});
    const uint32_t forward = p.segment("forward"), reduce = p.segment("reduce", plan::SegmentKind::Reduce);
    if (r == 1)
      p.recv(forward, a, 0, 0);
    p.copy(forward, a, b, 1 << 20);
    if (r == 0)
      p.send(forward, b, 0, 0);
    p.allReduce(reduce, a, a, 1 << 10);
    p.program.segments[forward]->stage = int(r);
    p.program.segments[reduce]->stage = -1;
    p.action(forward, 0);
    p.action(forward, 1);
    p.action(reduce, 0);
    plan.programs.push_back(p.finish());
    plan.programs.back()->stage = r;
    plan.ranks[r]->program = r;
    plan.ranks[r]->peers = {1 - r};
  }
  test::addGroup(plan, {0, 1}, "pp");
  return plan;
}

/// A trace of `iterations` equal iterations of 100 ms; times in milliseconds.
struct TraceWriter {
  Json events = Json::array();
  int iterations;
  std::string hash, kind = "train";

  TraceWriter(std::string hash, int iterations = 3) : iterations(iterations), hash(std::move(hash)) {
    //              segment, step, microbatch, begin, time
    step(0, 0, 0, 0, 1, 10), step(0, 0, 1, 0, 11, 2); // copy, send
    step(0, 0, 0, 1, 13, 10), step(0, 0, 1, 1, 23, 2);
    step(0, 1, 0, 0, 25, 50);                          // waits for rank 1
    step(1, 0, 0, 0, 0, 15), step(1, 0, 1, 0, 15, 20); // receives: waits until 11, takes 4; then copies
    step(1, 0, 0, 1, 35, 1), step(1, 0, 1, 1, 36, 24); // the message was sent earlier
    step(1, 1, 0, 0, 60, 5);
  }

  void step(int rank, int segment, int index, int microbatch, double begin, double ms) {
    for (int i = 0; i < iterations; ++i)
      events.push_back({{"name", "x"},
                        {"ph", "X"},
                        {"pid", rank},
                        {"tid", 0},
                        {"ts", (begin + 100 * i) * 1e3},
                        {"dur", ms * 1e3},
                        {"args", {{"microbatch", microbatch}, {"iteration", i}, {"at", {segment, index}}}}});
  }

  std::string text() const {
    const Json run{{"plan", hash}, {"ranks", 2}, {"kind", kind}, {"iterations", iterations}};
    return Json{{"displayTimeUnit", "ms"}, {"run", run}, {"traceEvents", events}}.dump();
  }
};

double measured(const std::vector<ComparedKind> &kinds, const std::string &kind) {
  for (const ComparedKind &row : kinds)
    if (row.kind == kind)
      return row.time.measured * 1e3;
  return -1;
}

} // namespace

TEST_CASE("a run beside its prediction: by kind, rank, stage and step, without waiting") {
  const auto file = test::seal(twoRanks());
  const Simulation simulation = simulate(file->plan(), cluster());
  const MeasuredRun run = readTrace(TraceWriter(file->hash()).text(), "t.json", file->plan(), file->hash());
  REQUIRE(run.ranks.size() == 2);
  CHECK(run.ranks[1].size() == 15);
  const Comparison c = compareWithRun(file->plan(), cluster(), simulation, run);
  CHECK(c.iterations == 3);
  CHECK(c.step.predicted == simulation.stepSeconds);
  CHECK(c.step.measured == Approx(0.075)); // from 0 to the end of rank 0's collective
  CHECK(c.between == Approx(0.025));
  REQUIRE(c.ranks.size() == 2);
  CHECK(measured(c.ranks[0].kinds, "copy") == Approx(20));
  CHECK(measured(c.ranks[0].kinds, "message") == Approx(4));       // a host's time for a send
  CHECK(measured(c.ranks[0].kinds, "all-reduce pp") == Approx(5)); // rank 1 came last, and took 5
  CHECK(measured(c.ranks[1].kinds, "copy") == Approx(44));
  CHECK(measured(c.ranks[1].kinds, "message") == Approx(4 + 1));
  CHECK(measured(c.kinds, "copy") == Approx(32)); // the mean of the ranks
  CHECK(c.ranks[0].busy.measured == Approx(0.020));
  CHECK(c.ranks[0].busy.predicted == simulation.times[simulation.ranks.classOf[0]].busy);
  CHECK(c.ranks[0].communication.measured == Approx(0.009));
  CHECK(c.ranks[0].idle.measured == Approx(0.046));
  REQUIRE(c.stages.size() == 3); // -1: no stage, 0, 1
  CHECK(measured(c.stages[0].kinds, "all-reduce pp") == Approx(5));
  CHECK(measured(c.stages[2].kinds, "copy") == Approx(44));
  CHECK(c.stages[2].ranks == 1);
  for (size_t i = 1; i < c.steps.size(); ++i)
    CHECK(std::abs(c.steps[i - 1].time.miss()) >= std::abs(c.steps[i].time.miss()));
  for (const ComparedRank &rank : c.ranks)
    for (const ComparedKind &row : rank.kinds)
      if (row.kind == "copy")
        CHECK(row.time.predicted == Approx(rank.busy.predicted));
}

TEST_CASE("traces that are torn, of something else, or not of all ranks are refused") {
  const auto file = test::seal(twoRanks());
  const auto refused = [&](const std::string &text) -> std::string {
    try {
      readTrace(text, "t.json", file->plan(), file->hash());
    } catch (const Error &error) {
      CHECK(error.status == Status::User);
      return error.what();
    }
    return "accepted";
  };
  const TraceWriter good(file->hash());
  REQUIRE(refused(good.text()) == "accepted");
  const auto with = [&](auto change) {
    TraceWriter changed = good;
    change(changed);
    return refused(changed.text());
  };
  const std::string text = good.text();
  for (size_t end = 0; end < text.size(); end += 97)
    CHECK_THAT(refused(text.substr(0, end)), Catch::StartsWith("t.json: torn, or no JSON"));
  CHECK_THAT(refused("[]"), Catch::StartsWith("t.json: no trace of a run"));
  CHECK_THAT(refused(R"({"traceEvents":[{"ph":"X","pid":0}]})"), Catch::StartsWith("t.json: no trace of a run"));
  CHECK_THAT(refused(std::string(100, '[')), Catch::Contains("nested deeper"));
  CHECK_THAT(with([](auto &t) { t.hash = "0123456789abcdef"; }),
             Catch::StartsWith("t.json: a trace of another plan: its hash is 0123456789ab, that of the plan " +
                               file->hash().substr(0, 12)));
  CHECK_THAT(with([](auto &t) { t.kind = "eval"; }), Catch::Contains("the trace of an evaluation"));
  CHECK_THAT(with([](auto &t) { t.iterations = 0; }), Catch::Contains("no training iteration"));
  CHECK_THAT(with([](auto &t) { t.iterations = 4; }),
             Catch::Contains("rank 0 has 15 events, 4 iterations of 5 steps have 20"));
  CHECK(with([](auto &t) {
          Json one = Json::array();
          for (const Json &event : t.events)
            if (event["pid"] == 0)
              one.push_back(event);
          t.events = one;
        }) == "t.json: the trace lacks rank 1; it must have all 2");
  CHECK_THAT(with([](auto &t) { t.events.erase(t.events.begin()); }), Catch::Contains("not complete: rank 0 has 14"));
  CHECK_THAT(with([](auto &t) { t.events[0] = t.events[1]; }), Catch::Contains("too often in iteration 1"));
  CHECK_THAT(with([](auto &t) { t.events[0]["args"]["iteration"] = 3; }), Catch::Contains("too often in iteration 3"));
  CHECK_THAT(with([](auto &t) { t.events[0]["pid"] = 2; }), Catch::Contains("event 0 is of no rank of the plan"));
  CHECK_THAT(with([](auto &t) {
               t.events[4]["args"]["at"] = {0, 2};
             }),
             Catch::Contains("event 4 is step 2 of segment 0, which rank 0 of the plan does not have"));
  CHECK_THAT(with([](auto &t) { t.events[0]["dur"] = -1; }), Catch::Contains("dur must be a number"));
  CHECK_THAT(with([](auto &t) { t.events[0]["args"].erase("at"); }), Catch::Contains("does not say which step"));
  CHECK_THAT(with([](auto &t) { t.events[0].erase("args"); }), Catch::Contains("has no args"));
}
