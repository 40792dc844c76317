// Which segment of which stage every op of an annotated function belongs to, and what crosses between them.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A segment's place in the order in which one microbatch runs a stage.
enum SegmentOrder { Forward = 0, InputGradient = 1, WeightGradient = 2 };

struct SegmentKey {
  int64_t stage = 0;
  int order = Forward;
  auto operator<=>(const SegmentKey &) const = default;
};

/// One value that travels from its stage to another.
struct Crossing {
  mlir::Value value;
  int64_t from = 0, to = 0;
  int64_t tag = 0;
  int receiveOrder = Forward; // the segment of the receiving stage that needs it first
};

/// The cut of one function (@train or @eval).
struct Segmentation {
  std::map<mlir::Operation *, SegmentKey> place;
  std::map<SegmentKey, std::vector<mlir::Operation *>> ops; // program order
  std::vector<Crossing> crossings;
  std::map<void *, std::vector<size_t>> crossingsOf; // by value, places in `crossings`
  /// Values that live from one segment to later ones of the same stage, with a name; (value, stage) -> name.
  std::map<std::pair<void *, int64_t>, std::string> stashes;
};

/// Ops that are made again wherever they are needed instead of being kept or sent: constants, iota, broadcasts, and
/// within a stage also the ops that only rename elements (reshape, transpose, slice).
bool isRemade(mlir::Operation *op, bool otherStage);

int64_t stageOf(mlir::Operation *op);

/// Cuts `func`. `firstTag` continues the numbering of messages. Throws userError where a forward value would go back to
/// an earlier stage.
Segmentation cutSegments(mlir::func::FuncOp func, int64_t &firstTag);

} // namespace cleave::partitioner
