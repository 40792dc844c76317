// The result of applying a strategy: local programs per class of equal ranks, stages and schedules. Input of plan
// export.
#pragma once
#include "ir/dist/Sharding.h"
#include "partitioner/schedule/ScheduleItem.h"
#include "partitioner/strategy/Strategy.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Ranks of one stage whose local shapes are all equal, so that they share one program.
struct RankClass {
  int64_t stage = 0;
  int64_t index = 0; // within the stage
  std::vector<int64_t> ranks;
  /// Segment name -> function symbol: @stage<S>.class<C>.<segment>. Segments without work are absent.
  std::map<std::string, std::string> functions;
};

struct StageInfo {
  std::vector<std::string> layers; // module paths, for display
  std::vector<int64_t> ranks;
  int64_t parameters = 0; // elements of the whole parameters (a tied parameter counts in its first stage)
  double flops = 0;       // forward and backward of one microbatch, whole stage
};

struct Applied {
  mlir::OwningOpRef<mlir::ModuleOp> module; // local phase of the dist dialect
  Strategy strategy;                        // complete: omitted decisions are filled in
  std::vector<RankClass> classes;
  std::vector<StageInfo> stages;
  /// Per stage. Train: begin, then the schedule of forward / input_gradient / weight_gradient, then reduce and update.
  std::vector<std::vector<ScheduleItem>> train, eval;
  /// The reason why no plan can hold the metrics, which need equal slots in training and evaluation; empty if none.
  std::string unequalMetric;
};

} // namespace cleave::partitioner
