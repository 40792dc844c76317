// The placement of a rank's input rows: for every microbatch and input slot the position in the input buffer and the
// part of the global batch that it holds. The data loader uses this list.
#pragma once
#include "runtime/plan/PlanTypes.h"
#include "runtime/plan/Slices.h"

#include <string>
#include <vector>

namespace cleave {

struct InputPart {
  std::string field; ///< the data set's field, for example "image"
  uint32_t slot;     ///< index of Program.slots
  plan::DType dtype;
  int32_t microbatch;
  uint64_t offset, bytes;      ///< in the input buffer
  std::vector<int64_t> shape;  ///< local
  std::vector<int64_t> global; ///< global shape at microbatch size, [B / M, ...]
  /// Boxes of the global tensor; for rows of the global batch add microbatch * global[0] to dimension 0.
  std::vector<Box> boxes;
};

/// Rows of a batch of evaluation.
int64_t evalBatchOf(const plan::Plan &plan);

/// The location at which training or evaluation makes the result for a sample depend on the rest of its microbatch;
/// empty if it does not.
std::string combinesSamples(const plan::Plan &plan, bool eval);

/// The inputs of `rank` in a training iteration, or in an evaluation. Each placement once, by microbatch then slot.
std::vector<InputPart> inputParts(const plan::Plan &plan, unsigned rank, bool eval);

} // namespace cleave
