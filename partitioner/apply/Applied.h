// What applying a strategy gives: local programs per class of equal ranks, stages and schedules. Input of plan export.
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

/// Ranks of one stage whose local shapes are all equal: they share one program.
struct RankClass {
  int64_t stage = 0;
  int64_t index = 0; // within the stage
  std::vector<int64_t> ranks;
  /// Segment name -> function symbol in the module: @stage<S>.class<C>.<segment>. A segment without work is absent.
  std::map<std::string, std::string> functions;
};

struct StageInfo {
  std::vector<std::string> layers; // module paths, as people name them
  std::vector<int64_t> ranks;
  int64_t parameters = 0; // whole, elements (a tied parameter counts in its first stage)
  double flops = 0;       // forward and backward of one microbatch, whole stage
};

struct Applied {
  mlir::OwningOpRef<mlir::ModuleOp> module; // local phase of the dist dialect
  Strategy strategy;                        // complete: what was left out is filled in
  std::vector<RankClass> classes;
  std::vector<StageInfo> stages;
  /// Per stage. Train: begin, the schedule of forward / input_gradient / weight_gradient, reduce, update.
  std::vector<std::vector<ScheduleItem>> train, eval;
  /// Why no plan can hold the metrics, which have one slot for training and evaluation; empty: one can.
  std::string unequalMetric;
};

} // namespace cleave::partitioner
