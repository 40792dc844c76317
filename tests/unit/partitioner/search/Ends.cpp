// What precedes and follows the passes of an iteration, on layers that are written down.
#include "partitioner/search/Ends.h"

#include "runtime/plan/plan_generated.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

/// Two layers: passes of 2 and 4 seconds, 5 seconds to gather, 3 to sum.
LayerCost layer() {
  LayerCost cost;
  cost.forward = 2, cost.backward = 4, cost.weightGradient = 2, cost.gathers = 5, cost.sums = 3;
  return cost;
}

StagePasses stageOf(const std::vector<LayerCost> &layers, double backward) {
  StagePasses stage;
  for (const LayerCost &one : layers)
    stage.layers.push_back(&one);
  stage.lastWeights = backward;
  return stage;
}

} // namespace

TEST_CASE("first forward passes hide gathers of later layers, last backward passes hide sums") {
  const std::vector<LayerCost> layers{layer(), layer()};
  PlanCosts use;
  use.hides = true;
  // The second layer has gathered its parameters at 10, and would begin at 2.
  const std::vector<const LayerCost *> both{&layers[0], &layers[1]};
  CHECK(readyTimes(use, {both}, 1) == std::vector<double>{8});
  // The gathers of a second stage come after those of the first.
  CHECK(readyTimes(use, {{both[0]}, {both[1]}}, 1) == std::vector<double>{5, 10});
  // Gradients are ready at 24 and 28; sums take 24 to 27 and 28 to 31.
  CHECK(endOfSums(use, {stageOf(layers, 20)}, 28) == 31);
}

TEST_CASE("collectives of the passes wait behind gathers, and sums behind them") {
  std::vector<LayerCost> layers{layer(), layer()};
  for (LayerCost &one : layers)
    one.exchangesForward = one.exchangesBackward = true;
  PlanCosts use;
  use.hides = true;
  CHECK(readyTimes(use, {{&layers[0]}, {&layers[1]}}, 1) == std::vector<double>{10, 10});
  CHECK(endOfSums(use, {stageOf(layers, 20)}, 28) == 34); // both sums after the last exchange, at 28
  // If the backward pass is split, the gradients of weights come after the last exchange.
  StagePasses split = stageOf(layers, 20);
  split.split = true, split.lastInputsEnd = 20, split.lastWeights = 20;
  CHECK(endOfSums(use, {split}, 24) == 28); // ready at 22 and 24
}

TEST_CASE("a host does one thing after the other") {
  const std::vector<LayerCost> layers{layer(), layer()};
  PlanCosts use;
  use.beginWork = 1;
  CHECK(readyTimes(use, {{&layers[0]}, {&layers[1]}}, 1) == std::vector<double>{11, 11});
  CHECK(endOfSums(use, {stageOf(layers, 20)}, 28) == 34);
}

TEST_CASE("gradients are summed in buckets of 25 MiB") {
  std::vector<LayerCost> layers(6);
  for (LayerCost &one : layers)
    one.backward = 0.001, one.buckets = {{0, 10 << 20}};
  PlanCosts use;
  use.hides = true;
  use.groups = {{{.members = 2, .nodes = 1, .perNode = 2, .insideRate = 1e9, .insideLatency = 1}, 1}};
  const double two = secondsOf(use.groups[0], plan::CollectiveKind::AllReduce, 20 << 20);
  StagePasses stage = stageOf(layers, 0);
  CHECK(endOfSums(use, {stage}, 0.006) == Approx(0.002 + 3 * two));
  use.groups[0].stretch = 2;
  CHECK(endOfSums(use, {stage}, 0.006) > 0.002 + 3 * two);
}
