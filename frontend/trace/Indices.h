// Which values functions read as indices: labels, ids, positions. An index that no element has is an error, never a
// number: tracing says where it can be found. Of the values of a data field, the loader checks every sample; indices
// that the model computes are counted in each step, and the run ends if any is invalid. Internal to the frontend.
#pragma once
#include "frontend/trace/Compose.h"

namespace cleave {

/// The indices that a function reads: `least` <= index < `below`, or `ignored`.
struct IndexRange {
  int64_t least = 0, below = 0, ignored = ir::noIndex;

  /// Of labels: negative ones and `ignored` are left out.
  static IndexRange labels(int64_t classes, int64_t ignored = ir::noIndex) { return {INT32_MIN, classes, ignored}; }
};

/// States that the function of `ops`, with name `name`, reads `indices` (i32). Throws a ModelError if they are a field
/// of the data that is declared to have more classes.
void readIndices(Ops &ops, const char *name, mlir::Value indices, const IndexRange &range);

} // namespace cleave
