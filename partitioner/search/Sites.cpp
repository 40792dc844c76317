// Numbers the places of ranks.
#include "partitioner/search/Sites.h"

#include <algorithm>
#include <set>

namespace cleave::partitioner {

Sites::Sites(const Cluster &cluster, int64_t devices) : cluster(cluster), places(cluster.places(devices)) {
  std::set<size_t> found;
  for (const Cluster::Place &place : places)
    found.insert(place.kind);
  kinds = found.size();
  if (oneKind())
    all.emplace_back();
}

std::vector<uint32_t> Sites::devicesAt(const Mesh &mesh, int64_t position) {
  std::vector<uint32_t> found;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    if (mesh.coordinate(AxisRole::Pipeline, mesh.coords(rank)) == position)
      found.push_back(static_cast<uint32_t>(rank));
  return found;
}

Site Sites::numberOf(std::vector<uint32_t> devices) {
  std::vector<uint64_t> key;
  std::map<int64_t, uint64_t> nodes;
  for (const uint32_t device : devices) {
    const Cluster::Place &place = places[device];
    const auto &wiring = cluster.nodes[place.group].wiring;
    key.insert(key.end(), {place.kind, place.group, nodes.try_emplace(place.node, nodes.size()).first->second,
                           wiring && !wiring->matrix.empty() ? place.device : 0});
  }
  const auto [found, fresh] = numbers.try_emplace(std::move(key), all.size());
  if (fresh)
    all.push_back(std::move(devices));
  return found->second;
}

std::vector<Site> Sites::partsAt(const Mesh &mesh, const std::vector<uint32_t> &devices, int64_t tensor) {
  std::vector<Site> found;
  std::set<size_t> seen;
  for (const uint32_t first : devices)
    if (seen.insert(places[first].kind).second) {
      const std::vector<int64_t> at = mesh.coords(first);
      std::vector<uint32_t> members;
      for (const uint32_t other : devices)
        if (tensor == 1 ? other == first
                        : mesh.coordinate(AxisRole::Data, mesh.coords(other)) == mesh.coordinate(AxisRole::Data, at))
          members.push_back(other);
      found.push_back(numberOf(std::move(members)));
    }
  return found;
}

const Sites::Placed &Sites::of(const PlanGroup &group) {
  std::vector<int64_t> key{group.split.data, group.split.tensor, group.pipeline};
  for (const AxisRole role : group.order)
    key.push_back(static_cast<int64_t>(role));
  auto [found, fresh] = placed.try_emplace(std::move(key));
  Placed &result = found->second;
  if (fresh && oneKind())
    result = {{0}, {{0}}, {{0}}};
  if (!fresh || oneKind())
    return result;
  const Mesh mesh = group.mesh();
  for (int64_t position = 0; position < group.pipeline; ++position) {
    std::vector<uint32_t> devices = devicesAt(mesh, position);
    result.groups.push_back(partsAt(mesh, devices, group.split.tensor));
    result.single.push_back(partsAt(mesh, devices, 1));
    result.positions.push_back(numberOf(std::move(devices)));
  }
  return result;
}

const std::vector<std::vector<Site>> &Sites::parts(const PlanGroup &group, int64_t tensor) {
  const Placed &found = of(group);
  return tensor == 1 ? found.single : found.groups;
}

std::vector<Mesh> Sites::orders(const Mesh &mesh) const {
  std::vector<Mesh> found{mesh};
  if (oneKind() || mesh.size(AxisRole::Pipeline) == 1)
    return found;
  const auto kindsOf = [&](const Mesh &ordered) {
    std::vector<std::multiset<size_t>> kindsAt;
    for (int64_t position = 0; position < mesh.size(AxisRole::Pipeline); ++position)
      for (auto &at = kindsAt.emplace_back(); const uint32_t device : devicesAt(ordered, position))
        at.insert(places[device].kind);
    return kindsAt;
  };
  std::set<std::vector<std::multiset<size_t>>> seen{kindsOf(mesh)};
  auto order = axisRoles;
  std::ranges::sort(order);
  do {
    Mesh other = mesh;
    other.order = order;
    if (std::ranges::find(order, AxisRole::Tensor) > std::ranges::find(order, AxisRole::Data) &&
        seen.insert(kindsOf(other)).second)
      found.push_back(parseMesh(meshText(other))); // in the one form of equal orders
  } while (std::ranges::next_permutation(order).found);
  return found;
}

uint32_t Sites::firstDevice(const PlanGroup &group, int64_t position) const {
  const Mesh mesh = group.mesh();
  std::vector<int64_t> coords;
  for (const MeshAxis &axis : mesh.axes)
    coords.push_back(axis.role() == AxisRole::Pipeline ? position : 0);
  return static_cast<uint32_t>(mesh.rank(coords));
}

} // namespace cleave::partitioner
