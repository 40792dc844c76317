// A plan of four ranks in two stages, for tests of the checker.
#pragma once
#include "tests/support/PlanBuilder.h"

namespace cleave::test {

/// Two stages of two data-parallel ranks: stage 0 computes h = x w and sends it, stage 1 receives it, multiplies by its
/// own weights, and both all-reduce a gradient-like value over their data-parallel group. Two microbatches.
struct Pipeline {
  PlanT plan = makePlan(2, 1, 2);
  uint32_t x, w, h, g, gSum, h1, w1, y, partial, whole;

  Pipeline() {
    plan.microbatches = 2;
    int tensorX = addTensor(plan, "x", TensorKind::Input, {8, 4});
    int tensorH = addTensor(plan, "h", TensorKind::Activation, {8, 3});
    addGroup(plan, {0, 1});
    addGroup(plan, {2, 3});
    plan.ranks[0]->peers = {2};
    plan.ranks[1]->peers = {3};
    plan.ranks[2]->peers = {0};
    plan.ranks[3]->peers = {1};
    ProgramWriter first;
    x = first.slot("x", plan::DType::F32, {4, 4}, Space::Input, tensorX);
    first.shard(x, {{{8, {0}}}, {{4, {}}}});
    w = first.slot("w", plan::DType::F32, {4, 3}, Space::Persistent);
    h = first.slot("h", plan::DType::F32, {4, 3}, Space::Placed, tensorH);
    first.shard(h, {{{8, {0}}}, {{3, {}}}});
    g = first.slot("g", plan::DType::F32, {4, 3}, Space::Placed);
    first.shard(g, {}, {0});
    gSum = first.slot("gSum", plan::DType::F32, {4, 3}, Space::Placed);
    first.shard(gSum, {});
    uint32_t forward = first.segment("forward"), update = first.segment("update", SegmentKind::Update);
    first.matmul(forward, x, w, h, 4, 3, 4);
    first.send(forward, h, 0, 11);
    first.copy(update, w, g, 12);
    first.allReduce(update, g, gSum, 12);
    first.copy(update, gSum, w, 12);
    first.action(forward, 0);
    auto &second = first.action(forward, 1);
    addWait(second, 11, 0);
    auto &third = first.action(update, -1);
    addWait(third, 11, 1);
    plan.programs.push_back(first.finish());
    moveInputs(*plan.programs[0], 1, 64);

    ProgramWriter last;
    h1 = last.slot("h", plan::DType::F32, {4, 3}, Space::Placed, tensorH);
    last.shard(h1, {{{8, {0}}}, {{3, {}}}});
    w1 = last.slot("w", plan::DType::F32, {3, 3}, Space::Persistent);
    y = last.slot("y", plan::DType::F32, {4, 3}, Space::Placed);
    uint32_t loss = last.slot("loss", plan::DType::F32, {1}, Space::Persistent);
    uint32_t forward1 = last.segment("forward"), update1 = last.segment("update", SegmentKind::Update);
    last.recv(forward1, h1, 0, 11);
    last.matmul(forward1, h1, w1, y, 4, 3, 3);
    last.copy(forward1, y, loss, 1);
    last.allReduce(update1, loss, loss, 1);
    last.action(forward1, 0);
    last.action(forward1, 1);
    last.action(update1, -1);
    last.named(last.program.metrics, "loss", loss);
    plan.programs.push_back(last.finish());
    plan.ranks[2]->program = plan.ranks[3]->program = 1;
  }

  static void addWait(ActionT &action, uint32_t tag, int microbatch) {
    action.wait_sends.push_back(SendId(tag, microbatch));
  }

  StepT &step(int program, int segment, int index) {
    return *plan.programs[static_cast<size_t>(program)]
                ->segments[static_cast<size_t>(segment)]
                ->steps[static_cast<size_t>(index)];
  }
  ProgramT &program(int index) { return *plan.programs[static_cast<size_t>(index)]; }
};

} // namespace cleave::test
