// A plan with a batch of kernel calls, but without generated code.
#pragma once
#include "tests/support/PlanBuilder.h"

namespace cleave::test {

/// Two parameters updated in place by calls of one kernel: p[i] += rate * g[i].
struct KernelCalls {
  PlanT plan = makePlan(1);
  uint32_t rate, p[2], g[2];

  explicit KernelCalls(const std::string &backend = "cuda") {
    plan.backend = backend;
    plan.kernels.push_back(std::make_unique<KernelInfoT>());
    plan.kernels[0]->symbol = "update";
    plan.kernels[0]->batch = backend == "cuda";
    ProgramWriter w;
    rate = w.slot("rate", plan::DType::F32, {1}, Space::Persistent);
    KernelBatchT batch;
    for (int i = 0; i < 2; ++i) {
      p[i] = w.slot("p", plan::DType::F32, {100 + 50 * i}, Space::Persistent);
      g[i] = w.slot("g", plan::DType::F32, {100 + 50 * i}, Space::Persistent);
      batch.calls.push_back(call({rate, g[i], p[i], p[i]}, 100 + 50 * i));
    }
    w.step(w.segment("update", SegmentKind::Update), std::move(batch));
    w.action(0, -1);
    plan.programs.push_back(w.finish());
  }

  static std::unique_ptr<KernelT> call(const std::vector<uint32_t> &slots, int64_t extent) {
    auto made = std::make_unique<KernelT>();
    for (uint32_t slot : slots)
      made->args.push_back(slot);
    made->extent = extent;
    made->outputs = 1;
    made->blocks = 2;
    return made;
  }
  KernelBatchT &batch() { return *plan.programs[0]->segments[0]->steps[0]->op.AsKernelBatch(); }
};

} // namespace cleave::test
