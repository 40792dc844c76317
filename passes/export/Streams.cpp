// Adds the waits that the runtime's own analysis of a plan reports as missing (runtime/plan/Streams.h).
#include "passes/export/Streams.h"

#include "passes/rewrite/Parallel.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/steps/Steps.h"

#include <numeric>

namespace cleave::passes {

namespace {

/// The plan serialised as the runtime reads it.
class Packed {
public:
  explicit Packed(const plan::PlanT &plan) { plan::FinishPlanBuffer(buffer, plan::Plan::Pack(buffer, &plan)); }
  const plan::Plan &operator*() const { return *plan::GetPlan(buffer.GetBufferPointer()); }

private:
  flatbuffers::FlatBufferBuilder buffer;
};

} // namespace

void assignStreams(plan::PlanT &plan, CollectiveStreams streams, mlir::MLIRContext *context) {
  {
    const Packed packed(plan);
    for (uint32_t p = 0; p < plan.programs.size(); ++p) {
      plan::ProgramT &program = *plan.programs[p];
      const plan::Program &read = *(*packed).programs()->Get(p);
      const uint32_t replicas = replicaStream(*packed, p);
      for (uint32_t s = 0; s < program.segments.size(); ++s)
        for (uint32_t i = 0; i < program.segments[s]->steps.size(); ++i) {
          const plan::Step &step = *read.segments()->Get(s)->steps()->Get(i);
          program.segments[s]->steps[i]->stream =
              streams == CollectiveStreams::Apart ? streamOf(*packed, step, replicas) : steps::onGpu(step).stream;
        }
      program.workspace_bytes = gpuWorkspace(read);
      program.peak_bytes += program.workspace_bytes;
      program.lower_bound_bytes += program.workspace_bytes;
    }
  }
  const Packed packed(plan);
  std::vector<size_t> order(plan.programs.size());
  std::iota(order.begin(), order.end(), 0);
  forEachInParallel(context, order, [&](size_t p) {
    for (bool eval : {false, true}) {
      auto &actions = eval ? plan.programs[p]->eval : plan.programs[p]->train;
      findUnordered(*(*packed).programs()->Get(static_cast<uint32_t>(p)), eval,
                    [&](const StepPlace &earlier, const StepPlace &later, uint32_t) {
                      actions[later.action]->waits.emplace_back(later.step, earlier.action, earlier.step);
                    });
    }
  });
}

} // namespace cleave::passes
