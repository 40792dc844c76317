// The part of a global tensor that a rank holds. A dimension is a product of factors, major first. A factor split over
// mesh axes with T members gives each member size/T elements, and one more to each of the first size%T members.
#pragma once
#include "runtime/base/Mesh.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cleave {

/// A run of consecutive indices of one dimension: global [globalStart, globalStart + size) is at localStart.
struct Run {
  int64_t globalStart, size, localStart;
  bool operator==(const Run &) const = default;
};

/// A box of the global tensor and its start in the local one; one entry per dimension.
struct Box {
  std::vector<int64_t> globalStart, size, localStart;
  bool operator==(const Box &) const = default;
};

/// Part `part` of `parts` of `size` elements: {begin, count}.
struct Part {
  int64_t begin, count;
};
Part splitPart(int64_t size, int64_t parts, int64_t part);

/// Local shape of a tensor of shape `global`. `sharding` may be null: not split. `meshSizes` and `coords` have one
/// entry per axis of Plan.mesh. Throws an environment error if the factors do not multiply to the shape.
std::vector<int64_t> localShape(const plan::Sharding *sharding, std::span<const int64_t> global,
                                std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords);

/// For each dimension the runs that a rank holds, ascending, adjacent ones merged.
std::vector<std::vector<Run>> localRuns(const plan::Sharding *sharding, std::span<const int64_t> global,
                                        std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords);

/// The product of localRuns: boxes in row-major order that tile the local tensor. A scalar gives one box without
/// dimensions; an empty share gives none.
std::vector<Box> localBoxes(const plan::Sharding *sharding, std::span<const int64_t> global,
                            std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords);

/// `count` elements that are contiguous in both the global and the local tensor, by row-major index.
struct Piece {
  int64_t global, local, count;
  bool operator==(const Piece &) const = default;
};

/// The local tensor as pieces of at most `most` elements.
std::vector<Piece> localPieces(const plan::Sharding *sharding, std::span<const int64_t> global,
                               std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords, int64_t most);

/// Sizes of the axes of Plan.mesh.
std::vector<uint32_t> meshSizes(const plan::Plan &plan);

/// The mesh of a plan. Its order is the one that the coordinates of the ranks follow; if they follow none, the usual.
Mesh meshOf(const plan::Plan &plan);

/// The number of ranks along the mesh axes with a role.
int64_t sizeOfAxis(const plan::Plan &plan, AxisRole role);

} // namespace cleave
