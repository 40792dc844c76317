// Simulated plans, built by hand, compared with timelines computed by hand.
#include "partitioner/simulate/Simulate.h"

#include "partitioner/cost/StepCost.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Trace.h"
#include "runtime/base/Error.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using test::ProgramWriter;

namespace {

Cluster cluster(const std::string &backend, int nodes, int devices) {
  return Cluster::parse(
      fmt::format("name = \"c\"\n[devices.a100]\nbackend = \"{}\"\nmemory_gib = 80\nmemory_gb_per_s = 2000\n"
                  "peak_tflops = {{ fp32 = 20 }}\n[[nodes]]\ncount = {}\ndevices = {{ a100 = {} }}\n"
                  "inside = {{ gb_per_s = 100, latency_us = 3 }}\n"
                  "[network]\ngb_per_s_per_node = 20\nlatency_us = 10\n",
                  backend, nodes, devices),
      "c.toml");
}

/// Seconds of a copy of f32 elements.
double copySeconds(const Cluster &on, int64_t elements) {
  StepWork work;
  work.kind = WorkClass::Copy;
  work.bytes = 8.0 * double(elements);
  return stepCost(work, CostDevice(on.devices[0])).seconds();
}

constexpr int64_t small = 20 << 20, large = 50 << 20; // elements

/// A stage of a pipeline that runs all forwards, then all backwards; every pass is one copy of `elements`.
std::unique_ptr<plan::ProgramT> stage(bool first, int64_t elements, int microbatches) {
  ProgramWriter p;
  const uint32_t from = p.slot("from", plan::DType::F32, {elements}), to = p.slot("to", plan::DType::F32, {elements});
  const uint32_t message = p.slot("message", plan::DType::F32, {1 << 20});
  const uint32_t forward = p.segment("forward"), backward = p.segment("backward", plan::SegmentKind::Backward);
  if (!first)
    p.recv(forward, message, 0, 0);
  p.copy(forward, from, to, elements);
  if (first) {
    p.send(forward, message, 0, 0);
    p.recv(backward, message, 0, 1);
  }
  p.copy(backward, from, to, elements);
  if (!first)
    p.send(backward, message, 0, 1);
  for (const uint32_t segment : {forward, backward})
    for (int m = 0; m < microbatches; ++m)
      p.action(segment, m);
  auto program = p.finish();
  program->stage = first ? 0 : 1;
  return program;
}

plan::PlanT pipeline(int64_t elements0, int64_t elements1, int microbatches) {
  plan::PlanT plan = test::makePlan(1, 1, 2);
  plan.microbatches = uint32_t(microbatches);
  plan.programs.push_back(stage(true, elements0, microbatches));
  plan.programs.push_back(stage(false, elements1, microbatches));
  plan.ranks[0]->program = 0, plan.ranks[1]->program = 1;
  plan.ranks[0]->peers = {1}, plan.ranks[1]->peers = {0};
  return plan;
}

Simulation simulated(const plan::PlanT &plan, const Cluster &on, const SimulateOptions &options = {}) {
  return simulate(test::seal(plan)->plan(), on, options);
}

/// dp ranks that compute, reduce in stream 1 while they compute something else, and then use the sum.
plan::PlanT overlapped(uint32_t dp, int64_t beside, int64_t count) {
  plan::PlanT plan = test::makePlan(dp);
  plan.backend = "cuda";
  ProgramWriter p;
  const int64_t most = std::max(beside, small);
  const uint32_t a = p.slot("a", plan::DType::F32, {most}), b = p.slot("b", plan::DType::F32, {most}),
                 c = p.slot("c", plan::DType::F32, {most}), sum = p.slot("sum", plan::DType::F32, {count});
  const uint32_t forward = p.segment();
  p.copy(forward, a, b, small);
  p.allReduce(forward, sum, sum, count);
  p.copy(forward, a, c, beside);
  p.copy(forward, a, c, small);
  plan::ActionT &action = p.action(forward);
  p.program.segments[forward]->steps[1]->stream = 1;
  action.waits.emplace_back(1, 0, 0);
  action.waits.emplace_back(3, 0, 1);
  plan.programs.push_back(p.finish());
  std::vector<uint32_t> all;
  for (uint32_t r = 0; r < dp; ++r) {
    plan.ranks[r]->program = 0;
    all.push_back(r);
  }
  test::addGroup(plan, all);
  return plan;
}

} // namespace

TEST_CASE("a pipeline of two stages and two microbatches, by hand") {
  const Cluster on = cluster("cpu", 1, 2);
  const DeviceConstants &c = constantsOf(on.devices[0]);
  const double a = copySeconds(on, small), b = copySeconds(on, large);
  const double m = c.communicationSeconds + 3e-6 + 4.0 * (1 << 20) / (100e9 * c.messageFraction);
  REQUIRE(b > a + m); // the timeline below assumes it
  // stage 0  F0 F1 ...              B0 .. B1
  // stage 1     F0 -- F1 -- B0 B1
  // A message between two passes of a stage moves only once the stage waits for it.
  const Simulation s = simulated(pipeline(small, large, 2), on);
  CHECK(s.stepSeconds == Approx(2 * a + 3 * m + 4 * b));
  REQUIRE(s.times.size() == 2);
  CHECK(s.times[0].busy == Approx(4 * a));
  CHECK(s.times[1].busy == Approx(4 * b));
  for (const ClassTimes &times : s.times)
    CHECK(times.busy + times.communication + times.idle == Approx(s.stepSeconds));
  // Stage 0 has the longest span, which is the whole iteration; stage 1 has the most work.
  CHECK(s.times[0].span == Approx(s.stepSeconds));
  CHECK(s.bubbleFraction == Approx(1 - 4 * b / s.stepSeconds));
}

TEST_CASE("many microbatches: the slower stage is never idle") {
  const Cluster on = cluster("cpu", 1, 2);
  const Simulation s = simulated(pipeline(small, large, 200), on);
  const double busy = 400 * copySeconds(on, large);
  CHECK(s.stepSeconds > busy);
  CHECK(s.stepSeconds < 1.1 * busy);
}

TEST_CASE("a collective beside a computation costs what is longer") {
  const Cluster on = cluster("cuda", 1, 4);
  const DeviceConstants &c = constantsOf(on.devices[0]);
  const double a = copySeconds(on, small);
  for (const int64_t beside : {int64_t(1 << 10), int64_t(400 << 20)}) {
    const int64_t count = 64 << 20;
    const double reduce = 8.4e-6 + 6 * 3.4e-6 + 2.0 * 3 / 4 * 4 * double(count) / (100e9 * c.insideFraction); // NCCL
    const double other = copySeconds(on, beside);
    const Simulation s = simulated(overlapped(4, beside, count), on);
    CHECK(s.stepSeconds == Approx(2 * a + std::max(reduce, other)));
    REQUIRE(s.times.size() == 1); // four identical ranks
    CHECK(s.times[0].hidden == Approx(std::min(reduce, other)));
    CHECK(s.times[0].communication == Approx(std::max(0.0, reduce - other)).margin(1e-12));
    CHECK(s.times[0].collectives == Approx(reduce));
  }
}

TEST_CASE("stages meet in a group, whatever the entries that name it") {
  // The table of rank 0 lists the group twice, as entries 0 and 1; that of rank 1 once.
  plan::PlanT plan = test::makePlan(1, 1, 2);
  for (const uint32_t r : {0u, 1u}) {
    ProgramWriter p;
    const uint32_t a = p.slot("a", plan::DType::F32, {small}), b = p.slot("b", plan::DType::F32, {small});
    const uint32_t sum = p.slot("sum", plan::DType::F32, {1 << 20});
    const uint32_t forward = p.segment();
    if (r == 0)
      p.copy(forward, a, b, small);
    p.allReduce(forward, sum, sum, 1 << 20, 0);
    p.allReduce(forward, sum, sum, 1 << 20, r == 0 ? 1 : 0);
    p.action(forward);
    plan.programs.push_back(p.finish());
    plan.ranks[r]->program = r;
  }
  test::addGroup(plan, {0, 1});
  plan.ranks[0]->groups = {0, 0};
  const Cluster on = cluster("cpu", 1, 2);
  const DeviceConstants &c = constantsOf(on.devices[0]);
  const double reduce =
      c.communicationSeconds + 4.0 * (1 << 20) / (100e9 * c.insideFraction) + 2 * 3e-6; // two exchanges
  CHECK(simulated(plan, on).stepSeconds == Approx(copySeconds(on, small) + 2 * reduce));
}

TEST_CASE("ranks of one program differ where their links do") {
  // 6 ranks: groups within one node and across nodes.
  plan::PlanT plan = overlapped(6, 1 << 10, 1 << 20);
  CHECK(simulated(plan, cluster("cuda", 1, 6)).times.size() == 1);
  CHECK(simulated(plan, cluster("cuda", 2, 3)).times.size() == 1); // one group, whose links are equal for all
  plan.groups.clear();
  for (auto &rank : plan.ranks)
    rank->groups.clear();
  test::addGroup(plan, {0, 1, 2});
  test::addGroup(plan, {3, 4, 5});
  CHECK(simulated(plan, cluster("cuda", 2, 3)).times.size() == 1); // two equal nodes
  const Simulation apart =
      simulated(plan, cluster("cuda", 3, 2)); // 0 1 | 2 3 | 4 5: both groups cross nodes and share node 1
  CHECK(apart.times.size() == 2);             // the ranks of node 1, and the others
  CHECK(apart.times[0].idle == apart.times[1].idle);
  CHECK(apart.stepSeconds > simulated(plan, cluster("cuda", 2, 3)).stepSeconds);
  // the second group crosses nodes, the first does not, and rank 3 has the first one on its node
  const Simulation uneven = simulated(plan, cluster("cuda", 2, 4));
  CHECK(uneven.times.size() == 3);
  CHECK(uneven.ranks.classOf == std::vector<uint32_t>{0, 0, 0, 1, 2, 2});
}

TEST_CASE("groups that share a node's network take longer") {
  plan::PlanT one = overlapped(4, 1 << 10, 64 << 20), two = overlapped(4, 1 << 10, 64 << 20);
  for (plan::PlanT *plan : {&one, &two}) {
    plan->groups.clear();
    for (auto &rank : plan->ranks)
      rank->groups.clear();
  }
  // Nodes 0 1 | 2 3: groups within the nodes, or across them.
  test::addGroup(one, {0, 1}), test::addGroup(one, {2, 3});
  test::addGroup(two, {0, 2}), test::addGroup(two, {1, 3});
  const Cluster on = cluster("cuda", 2, 2);
  const DeviceConstants &c = constantsOf(on.devices[0]);
  const double a = copySeconds(on, small), bytes = 4.0 * (64 << 20);
  CHECK(simulated(one, on).stepSeconds == Approx(2 * a + 8.4e-6 + 2 * 3.4e-6 + bytes / (100e9 * c.insideFraction)));
  CHECK(simulated(two, on).stepSeconds ==
        Approx(2 * a + 1.4 * (8.4e-6 + 2 * 19e-6) + bytes / (20e9 * c.networkFraction / 2)));
}

TEST_CASE("a message between GPUs moves when both have come to it") {
  plan::PlanT plan = pipeline(small, large, 1);
  plan.backend = "cuda";
  for (auto &program : plan.programs)
    for (auto &segment : program->segments)
      for (auto &step : segment->steps)
        step->stream = step->op.AsSend() ? 2 : step->op.AsRecv() ? 3 : 0;
  const Cluster on = cluster("cuda", 1, 2);
  // Without waits the streams are independent: the first message moves immediately, the second one after it.
  const Simulation s = simulated(plan, on);
  CHECK(s.stepSeconds == Approx(2 * copySeconds(on, large)));
}

TEST_CASE("plans that do not fit the cluster, or whose ranks never meet, are refused") {
  const plan::PlanT plan = pipeline(small, large, 2);
  CHECK_THROWS_WITH(simulated(plan, cluster("cpu", 1, 1)),
                    "the plan has 2 ranks, cluster c has 1 device; every rank needs one");
  CHECK_THROWS_WITH(simulated(plan, cluster("cuda", 1, 2)),
                    "the plan is for cpu, device a100 of cluster c, on which rank 0 lies, is for cuda");
  plan::PlanT stuck(plan);
  stuck.programs[0]->train.erase(stuck.programs[0]->train.begin()); // one message is missing
  CHECK_THROWS_WITH(simulated(stuck, cluster("cpu", 1, 2)), Catch::Contains("wait for each other without end"));
}

TEST_CASE("a plan that does not fit says which rank lacks what") {
  plan::PlanT plan = pipeline(small, large, 2);
  const int weight = test::addTensor(plan, "w", plan::TensorKind::Parameter, {int64_t(1) << 34});
  ProgramWriter p;
  p.slot("w", plan::DType::F32, {int64_t(1) << 34}, plan::Space::Persistent, weight); // 64 GiB
  p.slot("x", plan::DType::F32, {int64_t(1) << 33});                                  // 32 GiB
  p.slot("in", plan::DType::I32, {int64_t(1) << 28}, plan::Space::Input);             // 2 x 1 GiB
  plan.programs[1] = p.finish();
  const auto file = test::seal(plan);
  const MemoryParts parts =
      memoryParts(file->plan(), *file->plan().programs()->Get(1), cluster("cuda", 1, 2).devices[0]);
  CHECK(parts.parameters == uint64_t(64) << 30);
  CHECK(parts.activations == uint64_t(32) << 30);
  CHECK(parts.inputs == uint64_t(2) << 30);
  CHECK(parts.all() == file->plan().programs()->Get(1)->peak_bytes());
  CHECK(memoryProblem(file->plan(), cluster("cuda", 1, 2)).value_or("fits") ==
        "rank 1 needs 98.00 GiB of memory (parameters 64.00 GiB, activations 32.00 GiB, inputs 2.00 GiB), its device "
        "a100 has 79.00 GiB for it; more stages (pp) or ranks per layer (tp) would lower it");
  CHECK_FALSE(memoryProblem(test::seal(pipeline(small, large, 2))->plan(), cluster("cpu", 1, 2)));

  const auto advice = [&](uint32_t zero) {
    plan.choices = std::make_unique<plan::ChoicesT>();
    plan.choices->zero = zero;
    return memoryProblem(test::seal(plan)->plan(), cluster("cuda", 1, 2)).value_or("fits");
  };
  std::swap(plan.mesh[0]->size, plan.mesh[2]->size); // dp = 2
  CHECK(advice(0).ends_with("; --zero 3, more stages (pp) or ranks per layer (tp) would lower it"));
  CHECK(advice(3).ends_with("; more stages (pp) or ranks per layer (tp) would lower it"));
}

namespace {

constexpr double scoresBytes = 5.0 * 2 * 3 * 1024 * 1024; // bytes of the scores of attentionStep on an A100

/// Attention of 2 samples, 3 heads, 1,024 rows and keys, in half precision; the simulator does not read its views.
void attentionStep(ProgramWriter &p, uint32_t segment, uint32_t statistics, bool backward) {
  plan::AttentionT op;
  op.kind = backward ? plan::AttentionKind::Backward : plan::AttentionKind::Forward;
  op.batch = 2, op.heads = 3, op.rows = op.keys = 1024, op.width = 16;
  op.lse = int(statistics);
  op.dtype = plan::DType::F16;
  p.step(segment, std::move(op));
}

/// The attention scores that a program of `layers` layers keeps, in units of one layer and microbatch. `order` is its
/// list of actions as (segment, microbatch). Segments: 0 is forward; 1 is backward; 2 is backward that recomputes the
/// forward step of each layer directly before the layer's backward step.
double scoresOf(int layers, const std::vector<std::pair<uint32_t, int>> &order, const DeviceKind &kind) {
  ProgramWriter p;
  for (int layer = 0; layer < layers; ++layer)
    p.slot("statistics", plan::DType::F32, {2, 3, 1024});
  const uint32_t segments[] = {p.segment("forward"), p.segment("backward"), p.segment("recomputed")};
  for (int layer = 0; layer < layers; ++layer) {
    attentionStep(p, segments[0], uint32_t(layer), false);
    attentionStep(p, segments[1], uint32_t(layers - 1 - layer), true);
    attentionStep(p, segments[2], uint32_t(layers - 1 - layer), false);
    attentionStep(p, segments[2], uint32_t(layers - 1 - layer), true);
  }
  for (const auto &[segment, microbatch] : order)
    p.action(segments[segment], microbatch);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::Program::Pack(builder, &p.program));
  return double(keptScoreBytes(*flatbuffers::GetRoot<plan::Program>(builder.GetBufferPointer()), kind)) / scoresBytes;
}

} // namespace

TEST_CASE("scores stay from an attention's forward to its backward, where it is not fused") {
  DeviceKind kind = cluster("cuda", 1, 1).devices[0];
  CHECK(scoresOf(3, {{0, 0}, {1, 0}}, kind) == 3);
  CHECK(scoresOf(3, {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {1, 2}}, kind) == 6);     // two microbatches in flight
  CHECK(scoresOf(3, {{0, 0}, {0, 1}, {0, 2}, {1, 2}, {1, 1}, {1, 0}}, kind) == 9);     // three microbatches in flight
  CHECK(scoresOf(3, {{0, 0}, {0, 1}, {0, 2}, {2, 2}, {2, 1}, {2, 0}}, kind) == 1);     // recomputed layer by layer
  CHECK(scoresOf(3, {{0, 0}, {0, 1}, {0, 2}, {2, 2}, {2, 1}, {1, 0}}, kind) == 3 + 1); // microbatch 0 is not recomputed
  CHECK(scoresOf(3, {{0, 0}, {0, 1}}, kind) == 1);                                     // without a backward pass
  CHECK(scoresOf(0, {{0, 0}, {1, 0}}, kind) == 0);
  kind.fusedAttention = true;
  CHECK(scoresOf(3, {{0, 0}, {1, 0}}, kind) == 0);
}

TEST_CASE("the trace has an event for every step") {
  const Cluster on = cluster("cpu", 1, 2);
  const auto plan = test::seal(pipeline(small, large, 2));
  const Simulation s = simulate(plan->plan(), on, {.timeline = true});
  const std::string file = std::tmpnam(nullptr);
  writeSimulatedTrace(file, plan->plan(), s);
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in);
  std::remove(file.c_str());
  double last = 0, busy[2] = {};
  for (const auto &event : json["traceEvents"])
    if (event["ph"] == "X") {
      last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
      if (event["name"] == "Copy")
        busy[event["pid"].get<int>()] += event["dur"].get<double>();
    }
  CHECK(last == Approx(s.stepSeconds * 1e6));
  CHECK(busy[0] == Approx(s.times[0].busy * 1e6));
  CHECK(busy[1] == Approx(s.times[1].busy * 1e6));
}
