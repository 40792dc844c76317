// The result of applying a strategy: local programs per class of equal ranks, stages and schedules. Input of plan
// export.
#pragma once
#include "ir/dist/Sharding.h"
#include "ir/graph/Graph.h"
#include "partitioner/schedule/Segment.h"
#include "partitioner/strategy/Decisions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Ranks with the same stages whose local shapes are all equal, so that they share one program.
struct RankClass {
  int64_t position = 0; // coordinate on axis pp
  int64_t index = 0;    // index among the classes of this position
  std::vector<int64_t> ranks;
  /// Function symbols: @stage<position>.class<index>.<segment>. Segments without work are absent.
  std::map<SegmentId, std::string> functions;
};

struct StageInfo {
  std::vector<std::string> layers; // module paths, for display
  std::vector<int64_t> ranks;
  int64_t parameters = 0; // elements of the stage's parameters before sharding (a tied parameter counts in its first
                          // stage)
  double flops = 0;       // forward and backward of one microbatch, whole stage
};

struct LocalPrograms {
  mlir::OwningOpRef<mlir::ModuleOp> module; // local phase of the dist dialect
  Decisions decisions;
  std::vector<RankClass> classes;
  std::vector<StageInfo> stages;
  /// Per coordinate on axis pp. Train: begin, then the schedule of forward and backward (or input_gradient and
  /// weight_gradient), then reduce and update.
  std::vector<std::vector<ScheduleItem>> train, eval;
  /// A value that a segment of one position sends to a segment of another, once per microbatch.
  struct Message {
    int64_t tag = 0, from = 0, to = 0; // positions
    SegmentId sender, receiver;
    int64_t channel = 0; // channel between the two positions; with several chunks, one per pair of stages and direction
  };
  std::vector<Message> messages;
  /// The location of the op that combines the samples of a microbatch (MixedRows.h); empty if there is none.
  std::string trainMixes, evalMixes;
  /// By input: which of its values functions read as indices.
  std::map<std::string, std::vector<ir::IndicesAttr>> indices;
};

} // namespace cleave::partitioner
