// The plans among which a search chooses, as rows of a table.
#pragma once
#include "partitioner/strategy/Decisions.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// Plans that differ only in their schedule.
struct PlanGroup {
  SplitChoice split;
  int64_t pipeline = 1, microbatches = 1;
  AxisSizes sizes; ///< of the mesh: `split` and `pipeline` say what they are by role
  AxisOrder order; ///< of the ranks, see Mesh
  PlanGroup() : PlanGroup(oneDevice(), {}, 1) {}
  /// Of `split`, data and tensor are those of the mesh.
  PlanGroup(const Mesh &mesh, SplitChoice split, int64_t microbatches);
  Mesh mesh() const;
  int64_t ranks() const { return split.data * split.tensor * pipeline; }
};

/// A schedule of the table, with the number of stages on each rank.
struct ScheduleChoice {
  std::string name;
  int64_t chunks = 1;
  std::shared_ptr<const Schedule> given = nullptr; ///< of the schedule "auto": its orders
  Schedule of(const PlanGroup &group) const;       ///< throws userError for sizes that it does not support
  Schedule shapeOf(const PlanGroup &group) const;  ///< the same without the orders of the ranks
};

/// The decisions of these plans but for stages and shardings, which the row does not say.
Decisions decisionsOf(const PlanGroup &group, const ScheduleChoice &schedule);

/// The group of the plans with these decisions.
PlanGroup groupOf(const Decisions &all, int64_t batch);

/// What a search is asked for.
struct SpaceRequest {
  Strategy pins;       ///< what is decided already
  int64_t devices = 1; ///< ranks of every plan
  int64_t batch = 1, evalBatch = 0;
  /// Whether the schedule may be an order of its own, "auto", which no row of the space has (passes/search/Planner.h).
  bool ownOrders = false;
};

/// The plans that a request leaves open, of one model.
struct Space {
  SpaceRequest asked;
  int64_t layers = 1;     ///< the most stages: layers with parameters
  int64_t stages = 0;     ///< of every plan, 0: any number
  bool oneStage = false;  ///< beside `stages`, one stage may be
  bool mixesRows = false; ///< the number of microbatches is part of the model's function: 1, unless pinned
  bool solves = false;    ///< whether a solver may choose the shardings of single ops
};

class RankPlaces;

/// All groups, in a fixed order. Groups that cannot be are left out: batches that do not divide, fewer rows than ranks
/// that read them, more stages than layers. A mesh that is open has all orders of `places`.
std::vector<PlanGroup> groupsOf(const Space &space, const RankPlaces &places);

/// The schedules that a group can have.
std::vector<ScheduleChoice> schedulesOf(const Space &space, const PlanGroup &group);

} // namespace cleave::partitioner
