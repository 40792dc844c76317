// Numbers the ranks of a mesh.
#include "runtime/base/Mesh.h"

#include <algorithm>

namespace cleave {

std::vector<std::string> axesOf(AxisRole role) {
  std::vector<std::string> names;
  for (const Axis &axis : axisTable)
    if (axis.role == role)
      names.emplace_back(axis.name);
  return names;
}

bool hasRole(const std::vector<std::string> &axes, AxisRole role) {
  return std::any_of(axes.begin(), axes.end(), [&](const std::string &axis) { return roleOf(axis) == role; });
}

static std::string listed(const std::vector<std::string> &names, const std::string &last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : last) + names[i];
  return text;
}

std::string axesText() {
  std::vector<std::string> names;
  for (const Axis &axis : axisTable)
    names.emplace_back(axis.name);
  return listed(names, " and ");
}

std::string splittingAxesText() {
  std::vector<std::string> names;
  for (const Axis &axis : axisTable)
    if (splitsTensors(axis.name))
      names.emplace_back(axis.name);
  return listed(names, " or ");
}

int64_t Mesh::size(const std::string &axis) const {
  for (const MeshAxis &a : axes)
    if (a.name == axis)
      return a.size;
  return 1;
}

int64_t Mesh::size(AxisRole role) const {
  int64_t product = 1;
  for (const MeshAxis &axis : axes)
    if (axis.role() == role)
      product *= axis.size;
  return product;
}

int64_t Mesh::size(const std::vector<std::string> &names) const {
  int64_t product = 1;
  for (const std::string &name : names)
    product *= size(name);
  return product;
}

int64_t Mesh::ranks() const {
  int64_t product = 1;
  for (const MeshAxis &a : axes)
    product *= a.size;
  return product;
}

// Axes from slowest to fastest. Missing axes count as size 1; unknown axes would come first.
static std::vector<size_t> rankOrder(const Mesh &mesh) {
  std::vector<size_t> order;
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    order.push_back(i);
  const auto place = [&](size_t axis) {
    const std::optional<uint8_t> named = axisNamed(mesh.axes[axis].name);
    return named ? std::find(mesh.order.begin(), mesh.order.end(), *named) - mesh.order.begin() : -1;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  return order;
}

std::vector<int64_t> Mesh::coords(int64_t rank) const {
  std::vector<int64_t> result(axes.size());
  std::vector<size_t> order = rankOrder(*this);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    result[*it] = rank % axes[*it].size;
    rank /= axes[*it].size;
  }
  return result;
}

int64_t Mesh::rank(const std::vector<int64_t> &coords) const {
  int64_t result = 0;
  for (size_t i : rankOrder(*this))
    result = result * axes[i].size + coords[i];
  return result;
}

int64_t Mesh::linear(const std::vector<std::string> &names, const std::vector<int64_t> &coords) const {
  int64_t result = 0;
  for (const std::string &name : names)
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i].name == name)
        result = result * axes[i].size + coords[i];
  return result;
}

int64_t Mesh::coordinate(AxisRole role, const std::vector<int64_t> &coords) const {
  int64_t result = 0;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].role() == role)
      result = result * axes[i].size + coords[i];
  return result;
}

std::vector<int64_t> Mesh::with(AxisRole role, int64_t at, std::vector<int64_t> coords) const {
  for (size_t i = axes.size(); i-- > 0;)
    if (axes[i].role() == role) {
      coords[i] = at % axes[i].size;
      at /= axes[i].size;
    }
  return coords;
}

std::vector<std::string> Mesh::ordered() const {
  std::vector<std::string> names;
  for (const size_t i : rankOrder(*this))
    names.push_back(axes[i].name);
  return names;
}

} // namespace cleave
