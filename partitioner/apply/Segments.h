// Assigns every op of an annotated function to a segment of a stage, and finds the values that cross between them.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Order of a stage's segments within one microbatch.
enum SegmentOrder { Forward = 0, InputGradient = 1, WeightGradient = 2 };

struct SegmentKey {
  int64_t stage = 0;
  int order = Forward;
  auto operator<=>(const SegmentKey &) const = default;
};

/// A value sent from its stage to another.
struct Crossing {
  mlir::Value value;
  int64_t from = 0, to = 0;
  int64_t tag = 0;
  int receiveOrder = Forward; // the first segment of the receiving stage that needs it
};

/// The segmentation of one function (@train or @eval).
struct Segmentation {
  std::map<mlir::Operation *, SegmentKey> place;
  std::map<SegmentKey, std::vector<mlir::Operation *>> ops; // program order
  std::vector<Crossing> crossings;
  std::map<void *, std::vector<size_t>> crossingsOf; // by value, indices in `crossings`
  /// Names of values that live from one segment to later ones of the same stage; (value, stage) -> name.
  std::map<std::pair<void *, int64_t>, std::string> stashes;
};

/// Whether an op is rematerialised at each use instead of being stashed or sent: constants, iota, broadcasts, and
/// within a stage also views (reshape, transpose, slice).
bool isRemade(mlir::Operation *op, bool otherStage);

int64_t stageOf(mlir::Operation *op);

/// Cuts `func`. Continues numbering messages at `firstTag`. Throws userError if a forward value would be sent to an
/// earlier stage.
Segmentation cutSegments(mlir::func::FuncOp func, int64_t &firstTag);

} // namespace cleave::partitioner
