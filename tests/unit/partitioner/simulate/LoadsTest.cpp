// What a report says of an iteration beside its times: the load of links, and the memory of actions.
#include "partitioner/simulate/LinkLoads.h"
#include "partitioner/simulate/LiveBytes.h"
#include "tests/support/PlanBuilder.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;
using test::ProgramWriter;

namespace {

/// Forward passes of two microbatches, then their backward passes. `kept`: 1024 elements, of both passes; the others,
/// 512 elements, of one.
std::unique_ptr<plan::ProgramT> twoPasses() {
  ProgramWriter p;
  const uint32_t kept = p.slot("kept", plan::DType::F32, {1024}), one = p.slot("one", plan::DType::F32, {512}),
                 other = p.slot("other", plan::DType::F32, {512});
  const uint32_t forward = p.segment("forward"), backward = p.segment("backward", plan::SegmentKind::Backward);
  p.copy(forward, one, kept, 512);
  p.copy(backward, kept, other, 512);
  for (const uint32_t segment : {forward, backward})
    for (const int m : {0, 1})
      p.action(segment, m);
  return p.finish();
}

plan::PlanT oneRank(std::unique_ptr<plan::ProgramT> program) {
  plan::PlanT plan = test::makePlan(1);
  plan.microbatches = 2;
  plan.programs.push_back(std::move(program));
  return plan;
}

/// A message of 4 MiB from rank 0 to rank 1 in each of two microbatches.
plan::PlanT twoMessages() {
  plan::PlanT plan = test::makePlan(1, 1, 2);
  plan.microbatches = 2;
  for (const uint32_t stage : {0u, 1u}) {
    ProgramWriter p;
    const uint32_t a = p.slot("a", plan::DType::F32, {1 << 20}), b = p.slot("b", plan::DType::F32, {1 << 20});
    const uint32_t forward = p.segment();
    stage == 0 ? p.send(forward, a, 0, 0) : p.recv(forward, a, 0, 0);
    p.copy(forward, b, b, 1 << 20);
    p.action(forward, 0), p.action(forward, 1);
    plan.programs.push_back(p.finish());
    plan.programs.back()->stage = stage;
    plan.ranks[stage]->program = stage;
    plan.ranks[stage]->peers = {1 - stage};
  }
  return plan;
}

} // namespace

TEST_CASE("live bytes: what waits for another pass, and what a pass uses") {
  const auto plan = test::seal(oneRank(twoPasses()));
  const std::vector<LiveBytes> live = liveBytes(*plan->plan().programs()->Get(0));
  REQUIRE(live.size() == 4); // F0 F1 B0 B1
  for (const LiveBytes &one : live)
    CHECK(one.running == 4096 + 2048);
  CHECK(live[0].kept == 0);
  CHECK(live[1].kept == 4096); // of F0
  CHECK(live[2].kept == 4096); // of F1
  CHECK(live[3].kept == 0);
}

TEST_CASE("live bytes: slots at the same addresses count once") {
  auto program = twoPasses();
  for (auto &layout : program->layouts)
    layout->offsets.assign(layout->offsets.size(), 0);
  const auto plan = test::seal(oneRank(std::move(program)));
  for (const LiveBytes &one : liveBytes(*plan->plan().programs()->Get(0)))
    CHECK(one.running == 4096);
}

TEST_CASE("link loads: no byte is lost") {
  const Cluster on =
      Cluster::parse("name = \"c\"\n[devices.a100]\nbackend = \"cpu\"\nmemory_gib = 80\nmemory_gb_per_s = 2000\n"
                     "peak_tflops = { fp32 = 20 }\n[[nodes]]\ncount = 2\ndevices = { a100 = 1 }\n"
                     "[network]\ngb_per_s_per_node = 20\nlatency_us = 10\n",
                     "c.toml");
  const auto sealed = test::seal(twoMessages());
  const plan::Plan &plan = sealed->plan();
  const Simulation simulation = simulate(plan, on, {.traffic = true});
  const std::vector<NodeLoads> nodes = nodeLoads(plan, on, simulation, 37, 2);
  REQUIRE(nodes.size() == 2);
  const double rate = Topology(plan, on).networkRate(0);
  for (const bool in : {false, true}) {
    CHECK(nodes[in].ranks == std::vector<uint32_t>{in});
    const auto network = std::find_if(nodes[in].links.begin(), nodes[in].links.end(), [](const LinkLoad &load) {
      return load.links.front().kind == LinkKind::Network;
    });
    REQUIRE(network != nodes[in].links.end());
    CHECK(network->links.front().in == in);
    REQUIRE(network->byTime.size() == 37);
    double sum = 0;
    for (const double load : network->byTime) {
      CHECK((load >= 0 && load <= 1 + 1e-9));
      sum += load;
    }
    CHECK(sum / 37 == Approx(network->mean));
    CHECK(network->mean * simulation.stepSeconds * rate == Approx(2.0 * 4 * (1 << 20)));
  }
  CHECK(nodeLoads(plan, on, simulation, 37, 1)[1].links.empty());
}
