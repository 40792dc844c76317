// Decides which steps of a segment become one KernelBatch step, on value structs without plan or IR; and applies the
// decision.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::passes {

/// The properties of a step that matter for reordering.
struct StepUse {
  int64_t kernel = -1;                 ///< steps with equal kernels may be batched; -1: not batchable
  bool ordered = false;                ///< keeps its order among all ordered steps: other ranks may take part in it
  std::vector<uint32_t> reads, writes; ///< slots; a slot updated in place is in both
};

/// The steps in a valid execution order, grouped into batches (in their original order within a batch). A batch has
/// steps of one kernel, none of which accesses what another writes. Each step joins the first batch of its kernel on
/// which it does not depend, directly or indirectly. A batch runs at the position of its last step. `orderedFirst`:
/// ordered steps and those on which they depend run before all others.
std::vector<std::vector<size_t>> batchSteps(const std::vector<StepUse> &steps, bool orderedFirst = false);

class ProgramBuilder;
struct SegmentDraft;

/// Batches the kernels of a segment for a GPU. All slots of a batch are live from its first step to its last, so steps
/// that access large temporary slots are not batched.
void batchKernels(ProgramBuilder &program, SegmentDraft &draft);

} // namespace cleave::passes
