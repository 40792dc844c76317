// Which steps of a segment become one KernelBatch step. Value structs only, no plan and no IR; and the change itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::passes {

/// What a step does, as far as its place in the segment goes.
struct StepUse {
  int64_t kernel = -1;                 ///< steps of equal kernels may be batched; -1: not this one
  bool ordered = false;                ///< keeps its place among all ordered steps: what other ranks take part in
  std::vector<uint32_t> reads, writes; ///< slots; what is updated in place stands in both
};

/// The steps in an order in which they may run, those of a batch together (and in their old order among themselves). A
/// batch has steps of one kernel, none of which touches what another writes; each step joins the first batch of its
/// kernel that it does not depend on, by no path. A batch runs where its last step was.
std::vector<std::vector<size_t>> batchSteps(const std::vector<StepUse> &steps);

class ProgramBuilder;
struct SegmentDraft;

/// Batches the kernels of a segment for a GPU. What a batch reads and writes lives from its first step to its last; so
/// steps that touch much memory that is only placed for a while stay apart.
void batchKernels(ProgramBuilder &program, SegmentDraft &draft);

} // namespace cleave::passes
