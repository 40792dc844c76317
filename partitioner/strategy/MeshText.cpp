// Meshes from their shorthand, or from a number of devices and a kind of parallelism.
#include "partitioner/strategy/Decisions.h"
#include "runtime/base/Error.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Parts.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace cleave::partitioner {

Mesh meshByRole(int64_t data, int64_t tensor, int64_t pipeline) {
  Mesh mesh;
  for (const Axis &axis : axisTable) {
    int64_t &left = axis.role == AxisRole::Data ? data : axis.role == AxisRole::Tensor ? tensor : pipeline;
    mesh.axes.push_back({axis.name, std::exchange(left, 1)});
  }
  return mesh;
}

void setAxis(Mesh &mesh, const std::string &name, int64_t size, const std::string &where) {
  const auto axis = std::find_if(mesh.axes.begin(), mesh.axes.end(), [&](const MeshAxis &a) { return a.name == name; });
  if (axis == mesh.axes.end())
    throw userError(fmt::format("{}: axis \"{}\" is unknown; a mesh has {}", where, name, axesText()));
  if (size < 1 || size > largestAxis)
    throw userError(
        fmt::format("{}: the size of axis {} must be between 1 and {}, it is {}", where, name, largestAxis, size));
  axis->size = size;
}

Mesh oneDevice() { return meshByRole(1, 1, 1); }

/// Numbers the ranks of `mesh` along `named`, from the slowest axis to the fastest. Axes of size 1 do not matter: they
/// come first, so that equal numberings are equal orders.
static void setOrder(Mesh &mesh, const std::vector<std::string> &named) {
  std::vector<uint8_t> along, wanted;
  for (const std::string &name : named)
    if (mesh.size(name) > 1)
      along.push_back(*axisNamed(name));
  for (const uint8_t axis : usualOrder)
    if (mesh.size(axisTable[axis].name) > 1)
      wanted.push_back(axis);
  if (along == wanted) // the default
    return;
  auto next = mesh.order.begin();
  for (const uint8_t axis : usualOrder)
    if (mesh.size(axisTable[axis].name) == 1)
      *next++ = axis;
  std::copy(along.begin(), along.end(), next);
}

Mesh parseMesh(const std::string &text) {
  Mesh mesh = oneDevice();
  std::string where = "mesh \"" + text + "\"";
  std::vector<std::string> seen;
  if (text.empty())
    throw userError("the mesh is empty; expected for example dp=2,tp=2,pp=2");
  const bool ordered = text.find('/') != std::string::npos;
  if (ordered && text.find(',') != std::string::npos)
    throw userError(where + ": axes are separated by commas, or by slashes from the slowest axis to the fastest, not "
                            "by both");
  for (const std::string &part : partsOf(text, ordered ? '/' : ',')) {
    size_t equals = part.find('=');
    std::string name = part.substr(0, equals), number = equals == std::string::npos ? "" : part.substr(equals + 1);
    const std::optional<int64_t> size = parseNumber<int64_t>(number);
    setAxis(mesh, name, 1, where); // the axis is known
    if (!size)
      throw userError(fmt::format("{}: the size of axis {} must be a whole number, it is \"{}\"", where, name, number));
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      throw userError(fmt::format("{}: axis {} is given twice", where, name));
    seen.push_back(name);
    setAxis(mesh, name, *size, where);
  }
  if (ordered)
    setOrder(mesh, seen);
  return mesh;
}

std::string meshText(const Mesh &mesh) {
  std::vector<std::string> parts;
  if (mesh.order == usualOrder) {
    for (const MeshAxis &axis : mesh.axes)
      parts.push_back(fmt::format("{}={}", axis.name, axis.size));
    return fmt::format("{}", fmt::join(parts, ","));
  }
  for (const std::string &axis : mesh.ordered())
    if (mesh.size(axis) > 1)
      parts.push_back(fmt::format("{}={}", axis, mesh.size(axis)));
  return fmt::format("{}", fmt::join(parts, "/"));
}

// The largest divisor of n that is at most its k-th root.
static int64_t evenShare(int64_t n, int64_t k) {
  int64_t best = 1;
  for (int64_t d = 1; d <= n; ++d) {
    int64_t power = 1;
    for (int64_t i = 0; i < k && power <= n; ++i)
      power *= d;
    if (power > n)
      break;
    if (n % d == 0)
      best = d;
  }
  return best;
}

Mesh meshFor(int64_t devices, const std::string &kind) {
  if (devices < 1 || devices > largestAxis)
    throw userError(fmt::format("the number of devices must be between 1 and {}, it is {}", largestAxis, devices));
  if (kind == "data")
    return meshByRole(devices, 1, 1);
  if (kind == "model")
    return meshByRole(1, devices, 1);
  if (kind == "pipeline")
    return meshByRole(1, 1, devices);
  if (kind == "hybrid") {
    int64_t pp = evenShare(devices, 3), tp = evenShare(devices / pp, 2);
    return meshByRole(devices / pp / tp, tp, pp);
  }
  if (kind == "auto")
    throw userError("strategy \"auto\" has no mesh before the search");
  throw userError(fmt::format("strategy \"{}\" is neither data, model, pipeline, hybrid nor a file", kind));
}

} // namespace cleave::partitioner
