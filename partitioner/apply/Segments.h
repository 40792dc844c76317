// Assigns every op of an annotated function to a segment of a stage, and finds the values that cross between them.
#pragma once
#include "partitioner/schedule/Segment.h"
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A segment that computes on a microbatch: Forward of a stage, and Backward or, if the schedule splits that,
/// InputGradient and WeightGradient. All of @eval is Forward.
struct SegmentKey {
  int64_t stage = 0;
  SegmentKind kind = SegmentKind::Forward;
  auto operator<=>(const SegmentKey &) const = default;
};

/// A value sent from its stage to a stage of other ranks. One segment receives all values that a segment sends to a
/// stage, in the order of sending, which is the order of the tags: GPUs match messages by their order alone.
struct Crossing {
  mlir::Value value;
  int64_t from = 0, to = 0; // stages
  int64_t tag = 0;
  SegmentKind sentBy = SegmentKind::Forward;
  SegmentKind receivedBy = SegmentKind::Forward; // first segment of the receiving stage that needs a value from this
                                                 // sender
};

/// The segmentation of one function (@train or @eval).
struct Segmentation {
  std::map<mlir::Operation *, SegmentKey> place;
  std::map<SegmentKey, std::vector<mlir::Operation *>> ops; // program order
  std::vector<Crossing> crossings;
  std::map<void *, std::vector<size_t>> crossingsOf; // by value, indices in `crossings`
  /// Names of values that later segments of the same rank read: (value, stage that reads or computes it) -> name. All
  /// stages of one rank use the same name for a value.
  std::map<std::pair<void *, int64_t>, std::string> stashes;
};

/// The numbers of the next message and of the next stash, which @train and @eval share.
struct SegmentNumbers {
  int64_t tag = 0, stash = 0;
};

/// Cuts `func` into the segments of the strategy's stages. A split backward pass has two segments: the ops that another
/// stage waits for, and the others. Throws userError if a forward value would be sent to an earlier stage.
Segmentation cutSegments(mlir::func::FuncOp func, const Decisions &strategy, SegmentNumbers &next);

/// Sets cleave.role on the ops of @train that compute gradients of weights: those that a split backward pass does later
/// or, if the schedule does not split it, would do later if every layer were a stage.
void markRoles(mlir::func::FuncOp train, const Decisions &strategy);

} // namespace cleave::partitioner
