// Estimates the costs of the stages of an annotated step and finds the shortest schedule for them.
#include "partitioner/apply/ChooseSchedule.h"

#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/annotate/Rematerialised.h"
#include "partitioner/apply/Segments.h"
#include "partitioner/pipeline/Search.h"
#include "partitioner/stages/Layers.h"
#include "runtime/base/Error.h"

#include <utility>

using namespace mlir;

namespace cleave::partitioner {
namespace {

/// Elements and bytes of a value's piece on rank 0.
double elementsOf(Value value, const Mesh &mesh) {
  double elements = 1;
  for (const int64_t size : shardingOf(value).localShape(mesh, mesh.coords(0)))
    elements *= static_cast<double>(size);
  return elements;
}

double bytesOf(Value value, const Mesh &mesh) {
  return elementsOf(value, mesh) * std::max(1u, ir::tensorType(value).getElementTypeBitWidth() / 8);
}

/// Costs of each stage if the backward pass is split.
std::vector<StageCosts> costsOf(func::FuncOp train, const Decisions &strategy) {
  SegmentNumbers next;
  const Segmentation cut = cutSegments(train, strategy, next);
  const Mesh &mesh = strategy.mesh;
  const double shares = static_cast<double>(mesh.size(AxisRole::Data) * mesh.size(AxisRole::Tensor));
  std::vector<StageCosts> stages(static_cast<size_t>(strategy.stageCount()));
  for (const auto &[key, ops] : cut.ops) {
    StageCosts &costs = stages[static_cast<size_t>(key.stage)];
    double &time = key.kind == SegmentKind::Forward         ? costs.forward
                   : key.kind == SegmentKind::InputGradient ? costs.inputGradient
                                                            : costs.weightGradient;
    for (Operation *op : ops)
      if (!isRematerialised(op, false))
        time += costOf(op) / shares;
  }
  for (const Crossing &crossing : cut.crossings) {
    double &send = stages[static_cast<size_t>(crossing.from)].send;
    send = std::max(send, elementCharge * elementsOf(crossing.value, mesh));
  }
  std::set<std::pair<int64_t, std::string>> counted; // stages of one rank share stashes with the same name
  for (const auto &[place, name] : cut.stashes) {
    const Value value = Value::getFromOpaquePointer(place.first);
    if (!counted.insert({strategy.positionOf(place.second), name}).second)
      continue;
    StageCosts &costs = stages[static_cast<size_t>(place.second)];
    const bool forward = cut.place.at(value.getDefiningOp()).kind == SegmentKind::Forward;
    (forward ? costs.activationBytes : costs.gradientBytes) += bytesOf(value, mesh);
  }
  return stages;
}

} // namespace

void chooseSchedule(func::FuncOp train, Decisions &strategy) {
  std::vector<StageCosts> stages = costsOf(train, strategy);
  const Schedule shape{searchedSchedule, strategy.mesh.size(AxisRole::Pipeline), strategy.chunks, strategy.microbatches,
                       strategy.placement};
  std::vector<double> limits(static_cast<size_t>(shape.ranks));
  for (int64_t stage = 0; stage < shape.stages(); ++stage) {
    StageCosts &costs = stages[static_cast<size_t>(stage)];
    costs.activationBytes += std::exchange(costs.gradientBytes, 0); // microbatches count, not what each holds when
    limits[static_cast<size_t>(shape.rankOf(stage))] += static_cast<double>(shape.ranks) * costs.activationBytes;
  }
  const std::optional<Schedule> found = searchSchedule(shape, stages, limits);
  if (!found) // impossible: a rank can hold one microbatch, so running one after the other fits
    throw Error(Status::Internal, "schedule \"auto\": nothing was found");
  strategy.setSchedule(*found, "search");
}

} // namespace cleave::partitioner
