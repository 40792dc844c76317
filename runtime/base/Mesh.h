// The axes of meshes, and what each splits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

/// What an axis of a mesh splits: layers (stages of a pipeline), rows of a batch, tensors within layers.
enum class AxisRole : uint8_t { Pipeline, Data, Tensor };

inline constexpr size_t axisRoles = 3;

/// An axis that a mesh may have.
struct Axis {
  const char *name; ///< in meshes, shardings and plans
  AxisRole role;
};

/// All axes, as meshes list them. Of several with one role, the first gets all devices where only the role is asked
/// for.
inline constexpr std::array axisTable{Axis{"dp", AxisRole::Data}, Axis{"tp", AxisRole::Tensor},
                                      Axis{"pp", AxisRole::Pipeline}};

/// Sizes of all axes, as `axisTable` lists them.
using AxisSizes = std::array<int64_t, axisTable.size()>;

/// An order of all axes, from the slowest in the number of a rank to the fastest: places in `axisTable`.
using AxisOrder = std::array<uint8_t, axisTable.size()>;

constexpr AxisOrder orderBy(std::array<AxisRole, axisRoles> roles) {
  AxisOrder order{};
  size_t next = 0;
  for (const AxisRole role : roles)
    for (uint8_t a = 0; a < axisTable.size(); ++a)
      if (axisTable[a].role == role)
        order[next++] = a;
  return order;
}

inline constexpr AxisOrder usualOrder = orderBy({AxisRole::Pipeline, AxisRole::Data, AxisRole::Tensor});

/// The place of an axis in `axisTable`; nullopt if there is none of this name.
constexpr std::optional<uint8_t> axisNamed(std::string_view name) {
  for (uint8_t a = 0; a < axisTable.size(); ++a)
    if (name == axisTable[a].name)
      return a;
  return std::nullopt;
}

/// Of an axis with this name; nullopt if there is none.
constexpr std::optional<AxisRole> roleOf(std::string_view name) {
  const std::optional<uint8_t> axis = axisNamed(name);
  return axis ? std::optional(axisTable[*axis].role) : std::nullopt;
}

/// The first axis with a role.
constexpr const char *axisName(AxisRole role) {
  for (const Axis &axis : axisTable)
    if (axis.role == role)
      return axis.name;
  return "";
}

/// All axes with a role.
std::vector<std::string> axesOf(AxisRole role);

/// Whether one of the axes has a role.
bool hasRole(const std::vector<std::string> &axes, AxisRole role);

/// "dp, tp and pp": all axes.
std::string axesText();

/// "dp or tp": the axes over which a tensor can be split.
std::string splittingAxesText();

/// Whether a tensor can be split over the axis of this name.
constexpr bool splitsTensors(std::string_view axis) {
  const std::optional<AxisRole> role = roleOf(axis);
  return role && role != AxisRole::Pipeline;
}

/// An axis of a mesh: its name, from which its role follows, and its number of devices.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  std::optional<AxisRole> role() const { return roleOf(name); }
  bool operator==(const MeshAxis &) const = default;
};

/// A grid of devices. Ranks are numbered along its axes in `order`, the last one fastest: by default rank = (pp * DP +
/// dp) * TP + tp. As rank r runs on device r, this decides which axis is inside a node.
struct Mesh {
  std::vector<MeshAxis> axes; ///< as `axisTable` lists them
  AxisOrder order = usualOrder;
  /// Size of an axis; 1 if the mesh has no such axis.
  int64_t size(const std::string &axis) const;
  /// Product over the axes with a role.
  int64_t size(AxisRole role) const;
  /// Product over several axes.
  int64_t size(const std::vector<std::string> &names) const;
  int64_t ranks() const;
  /// Coordinates of a rank, in the order of `axes`.
  std::vector<int64_t> coords(int64_t rank) const;
  int64_t rank(const std::vector<int64_t> &coords) const;
  /// Linear coordinate of `coords` along `names`, listed major to minor.
  int64_t linear(const std::vector<std::string> &names, const std::vector<int64_t> &coords) const;
  /// Linear coordinate along the axes with a role.
  int64_t coordinate(AxisRole role, const std::vector<int64_t> &coords) const;
  /// Coordinates with linear coordinate `at` along the axes with a role, the others as in `coords`.
  std::vector<int64_t> with(AxisRole role, int64_t at, std::vector<int64_t> coords) const;
  /// The names of the axes, the slowest in the number of a rank first.
  std::vector<std::string> ordered() const;
  bool operator==(const Mesh &) const = default;
};

} // namespace cleave
