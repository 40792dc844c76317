// Enumerates the rows of the search space.
#include "partitioner/search/Space.h"

#include "partitioner/schedule/Named.h"
#include "partitioner/search/Questions.h"
#include "partitioner/strategy/DecisionTable.h"

#include <algorithm>
#include <iterator>

namespace cleave::partitioner {
namespace {

std::vector<int64_t> divisorsOf(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= number; ++d)
    if (number % d == 0) {
      low.push_back(d);
      if (d * d < number)
        high.push_back(number / d);
    }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// Whether a mesh has the axes that the request names.
bool allows(const SpaceRequest &request, const Mesh &mesh) {
  const auto splits = [&](AxisRole role) { return mesh.size(role) > 1; };
  const auto none = [&](AxisRole one, AxisRole other) { return !splits(one) && !splits(other); };
  if (!excludedBy(mesh, request.pins.decided()).empty())
    return false;
  if (request.pins.kind == "data")
    return none(AxisRole::Tensor, AxisRole::Pipeline);
  if (request.pins.kind == "model")
    return none(AxisRole::Data, AxisRole::Pipeline);
  if (request.pins.kind == "pipeline")
    return none(AxisRole::Data, AxisRole::Tensor);
  const int axes = splits(AxisRole::Data) + splits(AxisRole::Tensor) + splits(AxisRole::Pipeline);
  return request.pins.kind != "hybrid" || axes > 1 || divisorsOf(request.devices).size() <= 2; // a prime has one axis
}

/// Adds the meshes whose axes up to `axis` divide `devices` among themselves.
void addMeshes(const Space &space, const RankPlaces &places, Mesh mesh, size_t axis, int64_t devices,
               std::vector<Mesh> &meshes) {
  for (const int64_t size : axis == 0 ? std::vector{devices} : divisorsOf(devices)) {
    mesh.axes[axis].size = size;
    if (axis > 0)
      addMeshes(space, places, mesh, axis - 1, devices / size, meshes);
    else if (mesh.size(AxisRole::Pipeline) <= std::max<int64_t>(space.layers, 1) && allows(space.asked, mesh))
      std::ranges::copy(places.orders(mesh), std::back_inserter(meshes));
  }
}

std::vector<Mesh> meshesOf(const Space &space, const RankPlaces &places) {
  if (space.asked.pins.mesh)
    return {*space.asked.pins.mesh};
  std::vector<Mesh> meshes;
  addMeshes(space, places, oneDevice(), axisTable.size() - 1, space.asked.devices, meshes);
  return meshes;
}

std::vector<int64_t> microbatchesOf(const Space &space, int64_t data) {
  const SpaceRequest &request = space.asked;
  const int64_t evalBatch = request.evalBatch ? request.evalBatch : request.batch;
  std::vector<int64_t> all = request.pins.microbatches ? std::vector{*request.pins.microbatches}
                             : space.mixesRows         ? std::vector<int64_t>{1}
                                                       : divisorsOf(request.batch);
  std::erase_if(all, [&](int64_t m) {
    return request.batch % m || evalBatch % m || request.batch / m < data || evalBatch / m < data;
  });
  // Uneven rows only where no number of microbatches makes them even.
  if (std::ranges::any_of(all, [&](int64_t m) { return request.batch / m % data == 0; }))
    std::erase_if(all, [&](int64_t m) { return request.batch / m % data != 0; });
  return all;
}

} // namespace

Mesh PlanGroup::mesh() const {
  Mesh mesh = oneDevice();
  for (size_t a = 0; a < sizes.size(); ++a)
    mesh.axes[a].size = sizes[a];
  mesh.order = order;
  return mesh;
}

Decisions decisionsOf(const PlanGroup &group, const ScheduleChoice &schedule) {
  Decisions all;
  all.mesh = group.mesh();
  all.schedule = schedule.name, all.chunks = schedule.chunks;
  all.microbatches = group.microbatches;
  decide(all, group.split);
  return all;
}

PlanGroup::PlanGroup(const Mesh &mesh, SplitChoice chosen, int64_t microbatches)
    : split(chosen), pipeline(mesh.size(AxisRole::Pipeline)), microbatches(microbatches), order(mesh.order) {
  split.data = mesh.size(AxisRole::Data), split.tensor = mesh.size(AxisRole::Tensor);
  for (size_t a = 0; a < axisTable.size(); ++a)
    sizes[a] = mesh.size(axisTable[a].name);
}

PlanGroup groupOf(const Decisions &all, int64_t batch) { return {all.mesh, splitOf(all, batch), all.microbatches}; }

namespace {

/// The values of a decision that a search tries on a mesh.
struct TriedRow {
  const TriedValues *tried;
  std::vector<int64_t> values;
};

std::vector<TriedRow> rowsOn(const SpaceRequest &request, const Decisions &pinned, const Mesh &mesh) {
  std::vector<TriedRow> rows;
  for (const DecisionRow &row : decisionTable()) {
    if (!row.tried)
      continue;
    TriedRow &tries = rows.emplace_back(TriedRow{row.tried, {}});
    const RowState state = stateOf(row, request.pins, true);
    if (!row.isFree(mesh))
      tries.values = {row.tried->of(Decisions())};
    else if (state != RowState::Open)
      tries.values = {row.tried->of(pinned)};
    else
      for (int64_t value = 0; value < row.tried->count; ++value)
        tries.values.push_back(value);
  }
  return rows;
}

/// Adds the group with all values of the rows from `at` on.
void addGroups(const std::vector<TriedRow> &rows, size_t at, PlanGroup group, std::vector<PlanGroup> &groups) {
  if (at == rows.size())
    return groups.push_back(group);
  for (const int64_t value : rows[at].values) {
    rows[at].tried->choose(group.split, value);
    addGroups(rows, at + 1, group, groups);
  }
}

} // namespace

std::vector<PlanGroup> groupsOf(const Space &space, const RankPlaces &places) {
  const Decisions pinned = space.asked.pins.decided();
  std::vector<PlanGroup> groups;
  for (const Mesh &mesh : meshesOf(space, places)) {
    const int64_t data = mesh.size(AxisRole::Data);
    const std::vector<TriedRow> rows = rowsOn(space.asked, pinned, mesh);
    for (const int64_t microbatches : microbatchesOf(space, data))
      addGroups(rows, 0, {mesh, {.rows = space.asked.batch / microbatches}, microbatches}, groups);
  }
  return groups;
}

Schedule ScheduleChoice::of(const PlanGroup &group) const {
  return given ? *given : namedSchedule(name, group.pipeline, chunks, group.microbatches);
}

Schedule ScheduleChoice::shapeOf(const PlanGroup &group) const {
  return {name,
          group.pipeline,
          chunks,
          group.microbatches,
          given ? given->placement : placementOf(name),
          given ? given->backward : backwardOf(name)};
}

/// The schedule whose orders a request lists, if it is one of this group.
static std::vector<ScheduleChoice> givenOrders(const SpaceRequest &request, const PlanGroup &group) {
  Decisions strategy = request.pins.decided();
  strategy.mesh = group.mesh();
  if (std::ssize(strategy.order) != group.pipeline ||
      request.pins.microbatches.value_or(group.microbatches) != group.microbatches)
    return {};
  strategy.microbatches = group.microbatches;
  return {{strategy.schedule, strategy.chunks, std::make_shared<const Schedule>(strategy.plannedSchedule())}};
}

std::vector<ScheduleChoice> schedulesOf(const Space &space, const PlanGroup &group) {
  constexpr int64_t mostChunks = 8;
  const Strategy &pins = space.asked.pins;
  if (!pins.order.empty())
    return givenOrders(space.asked, group);
  const auto allowed = [&](int64_t stages) {
    return space.stages == 0 || stages == space.stages || (stages == 1 && space.oneStage);
  };
  if (group.pipeline == 1 && allowed(1) && !pins.schedule) // else one position runs all of the stages
    return {{"1f1b", 1}};
  std::vector<ScheduleChoice> all;
  for (const std::string &name : namedSchedules()) {
    if (pins.schedule && *pins.schedule != name)
      continue;
    const int64_t own = chunksOf(name);
    for (int64_t chunks = own ? own : 2; chunks <= (own ? own : mostChunks); ++chunks)
      if ((!pins.chunks || *pins.chunks == chunks) && group.pipeline * chunks <= space.layers &&
          allowed(group.pipeline * chunks) && !checkNamedSizes(name, group.pipeline, chunks, group.microbatches))
        all.push_back({name, chunks});
  }
  return all;
}

} // namespace cleave::partitioner
