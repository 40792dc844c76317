// Where a rank's input rows go: for every microbatch and input slot the place in the input buffer and the part of the
// global batch that belongs there. The data loader fills buffers by this list.
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
  /// Boxes of the global tensor; add microbatch * global[0] to dimension 0 for rows of the global batch.
  std::vector<Box> boxes;
};

/// What `rank` reads in a training iteration, or in an evaluation. Each place once, by microbatch then slot.
std::vector<InputPart> inputParts(const plan::Plan &plan, unsigned rank, bool eval);

} // namespace cleave
