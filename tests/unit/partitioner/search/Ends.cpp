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

StagePasses stageOf(const std::vector<LayerCost> &layers, double forward, double backward) {
  StagePasses stage;
  for (const LayerCost &one : layers)
    stage.layers.push_back(&one);
  stage.firstForward = forward;
  stage.lastWeights = backward;
  return stage;
}

} // namespace

TEST_CASE("first forward passes hide gathers of later layers, last backward passes hide sums") {
  const std::vector<LayerCost> layers{layer(), layer()};
  PlanCosts use;
  use.hides = true;
  // The second layer has gathered its parameters at 10, and would begin at 2.
  CHECK(delayOfBegin(use, {stageOf(layers, 0, 20)}, 1) == 8);
  // A stage that waits for its first message hides more.
  CHECK(delayOfBegin(use, {stageOf(layers, 7, 20)}, 1) == 1);
  // Gradients are ready at 24 and 28; sums take 24 to 27 and 28 to 31.
  CHECK(endOfUpdate(use, {stageOf(layers, 0, 20)}, 1, 28) == 31);
  use.endWork = 2, use.endOthers = 1;
  CHECK(endOfUpdate(use, {stageOf(layers, 0, 20)}, 0.5, 28) == 33);
}

TEST_CASE("collectives of the passes wait behind gathers, and sums behind them") {
  std::vector<LayerCost> layers{layer(), layer()};
  for (LayerCost &one : layers)
    one.exchangesForward = one.exchangesBackward = true;
  PlanCosts use;
  use.hides = true;
  CHECK(delayOfBegin(use, {stageOf(layers, 0, 20)}, 1) == 10);
  CHECK(endOfUpdate(use, {stageOf(layers, 0, 20)}, 1, 28) == 34); // both sums after the last exchange, at 28
  // If the backward pass is split, the gradients of weights come after the last exchange.
  StagePasses split = stageOf(layers, 0, 20);
  split.split = true, split.lastInputsEnd = 20, split.lastWeights = 20;
  CHECK(endOfUpdate(use, {split}, 1, 24) == 28); // ready at 22 and 24
}

TEST_CASE("a host does one thing after the other") {
  const std::vector<LayerCost> layers{layer(), layer()};
  PlanCosts use;
  use.beginWork = 1;
  CHECK(delayOfBegin(use, {stageOf(layers, 0, 20)}, 1) == 11);
  CHECK(endOfUpdate(use, {stageOf(layers, 0, 20)}, 1, 28) == 34);
}

TEST_CASE("gradients are summed in buckets of 25 MiB") {
  std::vector<LayerCost> layers(6);
  for (LayerCost &one : layers)
    one.backward = 0.001, one.buckets = {{0, 10 << 20}};
  PlanCosts use;
  use.hides = true;
  use.groups = {{{.members = 2, .nodes = 1, .perNode = 2, .insideRate = 1e9, .insideLatency = 1}, 1}};
  const double two = secondsOf(use.groups[0], plan::CollectiveKind::AllReduce, 20 << 20);
  StagePasses stage = stageOf(layers, 0, 0);
  CHECK(endOfUpdate(use, {stage}, 1, 0.006) == Approx(0.002 + 3 * two));
  use.groups[0].stretch = 2;
  CHECK(endOfUpdate(use, {stage}, 1, 0.006) > 0.002 + 3 * two);
}
