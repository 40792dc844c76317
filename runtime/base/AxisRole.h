// What an axis of a mesh splits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cleave {

/// Of the axes of a mesh, from the slowest in the number of a rank to the fastest: layers (stages of a pipeline), rows
/// of a batch, tensors within layers.
enum class AxisRole : uint8_t { Pipeline, Data, Tensor };

inline constexpr std::array axisRoles{AxisRole::Pipeline, AxisRole::Data, AxisRole::Tensor};

/// "pp", "dp", "tp": the name of the axis in meshes, shardings and plans.
constexpr const char *axisName(AxisRole role) {
  constexpr const char *names[] = {"pp", "dp", "tp"};
  return names[static_cast<uint8_t>(role)];
}

/// Of an axis with this name; nullopt if there is none.
constexpr std::optional<AxisRole> roleOf(std::string_view name) {
  for (const AxisRole role : axisRoles)
    if (name == axisName(role))
      return role;
  return std::nullopt;
}

} // namespace cleave
