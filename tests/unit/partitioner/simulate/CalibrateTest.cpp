// Runs that the simulator made with other constants: the fit finds these constants, and says which it cannot find.
#include "partitioner/simulate/Calibrate.h"

#include "partitioner/cost/Constants.h"
#include "partitioner/simulate/Fit.h"
#include "partitioner/simulate/Simulate.h"
#include "runtime/base/Error.h"
#include "tests/support/PlanBuilder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

using namespace cleave;
using namespace cleave::partitioner;
using test::ProgramWriter;

namespace {

Cluster cores() {
  return Cluster::parse("name = \"c\"\n[devices.core]\nbackend = \"cpu\"\nmemory_gib = 8\nmemory_gb_per_s = 20\n"
                        "peak_tflops = { fp32 = 0.1, bf16 = 0.2 }\n[[nodes]]\ndevices = { core = 2 }\n"
                        "inside = { gb_per_s = 10, latency_us = 1 }\n",
                        "c.toml");
}

double &constantIn(Cluster &cluster, Constant constant) {
  std::optional<double> &value = cluster.devices[0].constants[static_cast<size_t>(constant)];
  if (!value)
    value = constantOf(constantsOf(cluster.devices[0]), constant);
  return *value;
}

/// Products, fills and copies of many sizes, then messages and sums of many sizes. `grow`: factor of all sizes.
plan::PlanT variedSteps(int64_t grow, bool products = true) {
  plan::PlanT plan = test::makePlan(1, 1, 2);
  for (const uint32_t r : {0u, 1u}) {
    ProgramWriter p;
    const uint32_t forward = p.segment("forward"), reduce = p.segment("reduce", plan::SegmentKind::Reduce);
    for (const int64_t side : {8, 24, 64, 200, 512}) {
      const int64_t n = side * grow;
      const uint32_t a = p.slot("a", plan::DType::F32, {n, n}), b = p.slot("b", plan::DType::F32, {n, 64}),
                     c = p.slot("c", plan::DType::F32, {n, 64});
      p.fill(forward, a, 1);
      p.copy(forward, b, c, n * 64);
      if (products)
        p.matmul(forward, a, b, c, n, 64, n);
    }
    uint32_t tag = 0;
    for (const int64_t count : {100, 10'000, 1'000'000}) {
      const uint32_t d = p.slot("d", plan::DType::F32, {count * grow});
      r == 0 ? p.send(forward, d, 0, tag++) : p.recv(forward, d, 0, tag++);
      p.allReduce(reduce, d, d, count * grow);
    }
    p.action(forward, 0);
    p.action(reduce, 0);
    plan.programs.push_back(p.finish());
    plan.programs.back()->stage = r;
    plan.ranks[r]->program = r;
    plan.ranks[r]->peers = {1 - r};
  }
  test::addGroup(plan, {0, 1}, "pp");
  return plan;
}

/// What a trace on `cluster` says.
MeasuredRun runOn(const plan::Plan &plan, const Cluster &cluster, uint32_t iterations = 2) {
  const Simulation simulation = simulate(plan, cluster, {.timeline = true});
  MeasuredRun run{.iterations = iterations, .ranks = {}};
  for (const uint32_t index : simulation.ranks.classOf) {
    const plan::Program &program = *plan.programs()->Get(simulation.ranks.classes[index].program);
    std::vector<MeasuredStep> &steps = run.ranks.emplace_back();
    for (uint32_t i = 0; i < run.iterations; ++i)
      for (const StepSpan &span : simulation.timeline[index]) {
        const plan::Action &action = *program.train()->Get(span.action);
        steps.push_back({action.segment(), span.step, action.microbatch(), i, span.begin + i * simulation.stepSeconds,
                         span.end - span.begin});
      }
    std::stable_sort(steps.begin(), steps.end(), [](const MeasuredStep &a, const MeasuredStep &b) {
      return std::pair(a.iteration, a.begin) < std::pair(b.iteration, b.begin);
    });
  }
  return run;
}

const CalibratedConstant &named(const Calibration &found, const std::string &name) {
  const auto at = std::ranges::find(found.constants, name, &CalibratedConstant::name);
  REQUIRE(at != found.constants.end());
  return *at;
}

Cluster altered() {
  Cluster truth = cores();
  truth.devices[0].peakTflops[0] = 0.063;
  truth.devices[0].memoryGbPerS = 31;
  truth.nodes[0].inside = Link{.gbPerS = 4, .latencyUs = 7};
  constantIn(truth, Constant::LaunchUs) = 1.7;
  constantIn(truth, Constant::HalfSize) = 20;
  constantIn(truth, Constant::CacheSpeed) = 2;
  constantIn(truth, Constant::Copy) = 0.3;
  return truth;
}

} // namespace

TEST_CASE("a fit to a simulated run finds the constants it was made with") {
  const auto small = test::seal(variedSteps(1)), large = test::seal(variedSteps(3));
  const Cluster truth = altered();
  const Calibration found = calibrate(
      cores(), {{&small->plan(), {runOn(small->plan(), truth)}}, {&large->plan(), {runOn(large->plan(), truth)}}});
  CHECK(found.missBefore > 0.2);
  CHECK(found.missAfter < 0.01);
  const auto close = [&](const std::string &name, double value) {
    const CalibratedConstant &one = named(found, name);
    INFO(name);
    CHECK(one.determined);
    CHECK(one.after == Approx(value).epsilon(0.02));
    CHECK(one.error < 0.1);
    CHECK(one.steps > 0);
    CHECK(one.missAfter < 0.01);
  };
  close("devices.core.peak_tflops.fp32", 0.063);
  close("devices.core.constants.launch_us", 1.7);
  close("devices.core.constants.half_size", 20);
  close("devices.core.constants.cache_speed", 2);
  close("nodes.inside.gb_per_s", 4);
  // Of the memory's bandwidth and its fractions for two classes of work, the products count.
  const double memory = found.cluster.devices[0].memoryGbPerS;
  const DeviceConstants constants = constantsOf(found.cluster.devices[0]);
  CHECK(memory * constantOf(constants, Constant::Copy) == Approx(31 * 0.3).epsilon(0.02));
  CHECK(memory * constantOf(constants, Constant::Elementwise) == Approx(31 * 0.7).epsilon(0.02));
  // Nothing uses these.
  for (const char *name :
       {"peak_tflops.bf16", "constants.convolution_fp32", "constants.pooling", "constants.product_bf16"}) {
    const CalibratedConstant &one = named(found, std::string("devices.core.") + name);
    CHECK_FALSE(one.determined);
    CHECK(one.after == one.before);
  }
  CHECK(Cluster::parse(found.cluster.toToml(), "again.toml") == found.cluster);
  REQUIRE(found.plans.size() == 2);
  for (const CalibratedPlan &plan : found.plans) {
    CHECK(plan.iterations == 2);
    CHECK(plan.after == Approx(plan.measured).epsilon(0.01));
    CHECK(std::abs(plan.before / plan.measured - 1) > 0.1);
  }
}

TEST_CASE("a run without products says nothing about the peak, and a right cluster is left as it is") {
  const auto file = test::seal(variedSteps(2, false));
  const Calibration found = calibrate(cores(), {{&file->plan(), {runOn(file->plan(), altered())}}});
  CHECK_FALSE(named(found, "devices.core.peak_tflops.fp32").determined);
  CHECK_FALSE(named(found, "devices.core.constants.half_size").determined);
  CHECK(named(found, "devices.core.constants.launch_us").after == Approx(1.7).epsilon(0.02));
  CHECK(found.cluster.devices[0].peakTflops == cores().devices[0].peakTflops);
  const Calibration same = calibrate(cores(), {{&file->plan(), {runOn(file->plan(), cores())}}});
  for (const CalibratedConstant &one : same.constants)
    CHECK(one.after == Approx(one.before).epsilon(1e-3));
}

TEST_CASE("steps that other work slowed do not move the fit") {
  const auto file = test::seal(variedSteps(2));
  const Cluster truth = altered();
  MeasuredRun run = runOn(file->plan(), truth, 5);
  for (size_t i = 0; i < run.ranks[1].size(); ++i)
    if (MeasuredStep &one = run.ranks[1][i]; i % 8 == 0 || (one.segment == 0 && one.step == 3))
      one.seconds *= 10;
  const Calibration found = calibrate(cores(), {{&file->plan(), {run}}});
  CHECK(named(found, "devices.core.peak_tflops.fp32").after == Approx(0.063).epsilon(0.05));
  CHECK(named(found, "devices.core.constants.launch_us").after == Approx(1.7).epsilon(0.05));
}

TEST_CASE("a fit of two factors that only their product determines moves one of them") {
  FitProblem problem;
  problem.constants = 3;
  problem.beliefs = {0.3, 1, 1};
  problem.predict = [](std::span<const double> logs) { return std::vector<double>(8, std::exp(logs[0] + logs[1])); };
  problem.measured = std::vector<double>(8, 3);
  problem.weights = std::vector<double>(8, 1);
  const std::vector<FittedConstant> found = fitFactors(problem);
  CHECK_FALSE(found[0].determined);
  CHECK(found[0].factor == 1);
  REQUIRE(found[1].determined);
  CHECK(found[1].factor == Approx(3).epsilon(0.01));
  CHECK(found[1].samples.size() == 8);
  CHECK_FALSE(found[2].determined);
}
