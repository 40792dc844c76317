// A plan of two pipeline stages that uses messages, products, copies and a collective.
#pragma once
#include "tests/support/PlanBuilder.h"

namespace cleave::test {

constexpr int64_t rows = 6, width = 5, hidden = 3;

/// Rank 0: h = x w, sent to rank 1. Rank 1: y = h v, loss = y[0, 0], sent back as s. Both ranks add 1 + rank to `total`
/// and all-reduce it.
inline PlanT twoRanks() {
  PlanT plan = makePlan(1, 1, 2);
  plan.seed = 42;
  plan.microbatches = 2;
  addGroup(plan, {0, 1}, "pp");
  plan.ranks[0]->peers = {1};
  plan.ranks[1]->peers = {0};
  int tensorX = addTensor(plan, "x", TensorKind::Input, {rows, width});
  int tensorW = addTensor(plan, "fc.weight", TensorKind::Parameter, {width, hidden});
  plan.tensors.back()->init = std::make_unique<InitT>();
  plan.tensors.back()->init->kind = InitKind::Uniform;
  plan.tensors.back()->init->a = -1;
  plan.tensors.back()->init->b = 1;
  auto wait = [](ActionT &action, uint32_t tag, int microbatch) {
    action.wait_sends.push_back(SendId(tag, microbatch));
  };
  for (uint32_t r = 0; r < 2; ++r) {
    ProgramWriter p;
    uint32_t forward = p.segment("forward"), update = p.segment("update", SegmentKind::Update);
    uint32_t h = p.slot("h", plan::DType::F32, {rows, hidden});
    uint32_t w = p.slot("w", plan::DType::F32, r == 0 ? std::vector<int64_t>{width, hidden} : std::vector<int64_t>{hidden, 1},
                        Space::Persistent, r == 0 ? tensorW : -1);
    uint32_t loss = p.slot("loss", plan::DType::F32, {1}, Space::Persistent);
    uint32_t part = p.slot("part", plan::DType::F32, {1}, Space::Persistent),
             total = p.slot("total", plan::DType::F32, {1}, Space::Persistent);
    uint32_t step = p.slot("step", plan::DType::F32, {1}, Space::Persistent);
    if (r == 0) {
      uint32_t x = p.slot("x", plan::DType::F32, {rows, width}, Space::Input, tensorX);
      p.matmul(forward, x, w, h, rows, hidden, width);
      p.send(forward, h, 0, 1);
      p.recv(update, loss, 0, 2);
    } else {
      uint32_t y = p.slot("y", plan::DType::F32, {rows, 1});
      p.recv(forward, h, 0, 1);
      p.matmul(forward, h, w, y, rows, 1, hidden);
      p.copy(forward, y, loss, 1);
      p.send(update, loss, 0, 2);
    }
    p.fill(update, part, 1 + r);
    p.allReduce(update, part, total, 1);
    p.action(forward, 0);
    auto &second = p.action(forward, 1);
    if (r == 0)
      wait(second, 1, 0);
    p.action(update, -1);
    p.named(p.program.metrics, "loss", loss);
    p.named(p.program.metrics, "total", total);
    p.named(p.program.scalars, "step", step);
    p.named(p.program.scalars, "lr", part);
    plan.programs.push_back(p.finish());
    if (r == 0)
      moveInputs(*plan.programs[0], 1, 128);
    plan.ranks[r]->program = r;
  }
  return plan;
}

/// The same plan, but the product of rank 0 has an epilogue with an auxiliary matrix in the program's last slot.
inline PlanT twoRanksWithEpilogue(Epilogue epilogue) {
  PlanT plan = twoRanks();
  ProgramT &program = *plan.programs[0];
  MatmulT &matmul = *program.segments[0]->steps[0]->op.AsMatmul();
  auto aux = std::make_unique<SlotT>(*program.slots[matmul.c->slot]);
  aux->name = "aux";
  aux->space = Space::Persistent;
  aux->offset = program.arena_bytes;
  for (uint64_t *bytes : {&program.arena_bytes, &program.peak_bytes, &program.lower_bound_bytes})
    *bytes += (aux->bytes + 63) / 64 * 64;
  program.slots.push_back(std::move(aux));
  matmul.epilogue = epilogue;
  matmul.aux = ProgramWriter::view(static_cast<uint32_t>(program.slots.size()) - 1, {hidden, 1});
  return plan;
}

} // namespace cleave::test
