// Local parts of global tensors.
#include "runtime/plan/Slices.h"

#include "runtime/base/Error.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>

namespace cleave {

namespace {

/// The part of a factor that this rank holds.
Part factorPart(const plan::Factor &factor, std::span<const uint32_t> mesh, std::span<const uint32_t> coords) {
  int64_t parts = 1, part = 0;
  if (factor.axes())
    for (uint8_t axis : *factor.axes()) {
      if (axis >= mesh.size() || axis >= coords.size())
        throw environmentError(fmt::format("sharding: mesh axis {} of {}", axis, mesh.size()));
      parts *= mesh[axis];
      part = part * mesh[axis] + coords[axis];
    }
  return splitPart(factor.size(), parts, part);
}

/// Appends a run; merges it with the last one if both sides are contiguous.
void append(std::vector<Run> &runs, Run run) {
  if (run.size == 0)
    return;
  if (!runs.empty()) {
    Run &last = runs.back();
    if (last.globalStart + last.size == run.globalStart && last.localStart + last.size == run.localStart) {
      last.size += run.size;
      return;
    }
  }
  runs.push_back(run);
}

/// Runs of one dimension: starting at the minor factor, each factor repeats the runs of those below it.
std::vector<Run> dimensionRuns(const plan::Dim &dim, int64_t extent, std::span<const uint32_t> mesh,
                               std::span<const uint32_t> coords) {
  std::vector<Run> runs{{0, 1, 0}};
  int64_t globalBelow = 1, localBelow = 1;
  const auto *factors = dim.factors();
  for (size_t f = factors ? factors->size() : 0; f-- > 0;) {
    const plan::Factor &factor = *factors->Get(static_cast<flatbuffers::uoffset_t>(f));
    Part part = factorPart(factor, mesh, coords);
    std::vector<Run> next;
    bool whole = runs.size() == 1 && runs[0].size == globalBelow;
    if (whole) {
      append(next, {part.begin * globalBelow, part.count * globalBelow, 0});
    } else {
      for (int64_t i = 0; i < part.count; ++i)
        for (const Run &run : runs)
          append(next, {(part.begin + i) * globalBelow + run.globalStart, run.size, i * localBelow + run.localStart});
    }
    runs = std::move(next);
    globalBelow *= factor.size();
    localBelow *= part.count;
  }
  if (globalBelow != extent)
    throw environmentError(
        fmt::format("sharding: the factors of a dimension multiply to {}, the dimension is {}", globalBelow, extent));
  return runs;
}

/// Splits a box into runs of contiguous elements, none longer than `most`.
void addPieces(const Box &box, std::span<const int64_t> global, std::span<const int64_t> local, int64_t most,
               std::vector<Piece> &pieces) {
  size_t rank = global.size(), inner = rank;
  int64_t run = 1;
  while (inner > 0) { // trailing dimensions that are complete on both sides join the run; one more may be split
    --inner;
    run *= box.size[inner];
    if (box.size[inner] != global[inner] || box.size[inner] != local[inner])
      break;
  }
  std::vector<int64_t> index(inner, 0);
  for (;;) {
    int64_t globalAt = 0, localAt = 0;
    for (size_t d = 0; d < rank; ++d) {
      int64_t i = d < inner ? index[d] : 0;
      globalAt = globalAt * global[d] + box.globalStart[d] + i;
      localAt = localAt * local[d] + box.localStart[d] + i;
    }
    for (int64_t done = 0; done < run; done += most)
      pieces.push_back({globalAt + done, localAt + done, std::min(most, run - done)});
    size_t d = inner;
    while (d > 0 && ++index[d - 1] == box.size[d - 1])
      index[--d] = 0;
    if (d == 0)
      return;
  }
}

} // namespace

Part splitPart(int64_t size, int64_t parts, int64_t part) {
  int64_t each = size / parts, rest = size % parts;
  return {part * each + (part < rest ? part : rest), each + (part < rest ? 1 : 0)};
}

std::vector<std::vector<Run>> localRuns(const plan::Sharding *sharding, std::span<const int64_t> global,
                                        std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords) {
  const auto *dims = sharding ? sharding->dims() : nullptr;
  std::vector<std::vector<Run>> runs;
  if (!dims || dims->size() == 0) {
    for (int64_t extent : global)
      runs.push_back(extent ? std::vector<Run>{{0, extent, 0}} : std::vector<Run>{});
    return runs;
  }
  if (dims->size() != global.size())
    throw environmentError(fmt::format("sharding: {} dimensions for a tensor of {}", dims->size(), global.size()));
  for (size_t d = 0; d < global.size(); ++d)
    runs.push_back(dimensionRuns(*dims->Get(static_cast<flatbuffers::uoffset_t>(d)), global[d], meshSizes, coords));
  return runs;
}

std::vector<int64_t> localShape(const plan::Sharding *sharding, std::span<const int64_t> global,
                                std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords) {
  const auto *dims = sharding ? sharding->dims() : nullptr;
  if (!dims || dims->size() == 0)
    return {global.begin(), global.end()};
  if (dims->size() != global.size())
    throw environmentError(fmt::format("sharding: {} dimensions for a tensor of {}", dims->size(), global.size()));
  std::vector<int64_t> shape;
  for (const plan::Dim *dim : *dims) {
    int64_t whole = 1, local = 1;
    if (dim->factors())
      for (const plan::Factor *factor : *dim->factors()) {
        whole *= factor->size();
        local *= factorPart(*factor, meshSizes, coords).count;
      }
    if (whole != global[shape.size()])
      throw environmentError(fmt::format("sharding: the factors of dimension {} multiply to {}, the dimension is {}",
                                         shape.size(), whole, global[shape.size()]));
    shape.push_back(local);
  }
  return shape;
}

std::vector<Box> localBoxes(const plan::Sharding *sharding, std::span<const int64_t> global,
                            std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords) {
  for (int64_t extent : localShape(sharding, global, meshSizes, coords))
    if (extent == 0)
      return {};
  auto runs = localRuns(sharding, global, meshSizes, coords);
  std::vector<Box> boxes(1);
  for (const auto &dimension : runs) {
    std::vector<Box> next;
    next.reserve(boxes.size() * dimension.size());
    for (const Box &box : boxes)
      for (const Run &run : dimension) {
        Box &wider = next.emplace_back(box);
        wider.globalStart.push_back(run.globalStart);
        wider.size.push_back(run.size);
        wider.localStart.push_back(run.localStart);
      }
    boxes = std::move(next);
  }
  return boxes;
}

std::vector<Piece> localPieces(const plan::Sharding *sharding, std::span<const int64_t> global,
                               std::span<const uint32_t> meshSizes, std::span<const uint32_t> coords, int64_t most) {
  std::vector<Piece> pieces;
  auto local = localShape(sharding, global, meshSizes, coords);
  for (const Box &box : localBoxes(sharding, global, meshSizes, coords))
    addPieces(box, global, local, most, pieces);
  return pieces;
}

std::vector<uint32_t> meshSizes(const plan::Plan &plan) {
  std::vector<uint32_t> sizes;
  if (plan.mesh())
    for (const plan::MeshAxis *axis : *plan.mesh())
      sizes.push_back(axis->size());
  return sizes;
}

Mesh meshOf(const plan::Plan &plan) {
  Mesh mesh;
  for (const uint32_t size : meshSizes(plan))
    mesh.axes.push_back({text(plan.mesh()->Get(static_cast<uint32_t>(mesh.axes.size()))->name()), size});
  AxisSizes steps{}; // from one rank to the next along an axis; 0: an axis of size 1
  for (uint32_t r = 0; plan.ranks() && r < plan.ranks()->size(); ++r) {
    const auto *coords = plan.ranks()->Get(r)->coords();
    if (!coords || coords->size() != mesh.axes.size())
      return mesh;
    uint32_t sum = 0, at = 0;
    for (uint32_t a = 0; a < coords->size(); ++a)
      if (coords->Get(a) != 0)
        sum += coords->Get(a), at = a;
    if (const auto axis = axisNamed(mesh.axes.empty() ? "" : mesh.axes[at].name); sum == 1 && axis)
      steps[*axis] = r;
  }
  // Axes of size 1 keep their places, so that the usual order is returned where it holds.
  std::vector<uint8_t> split;
  for (const uint8_t axis : usualOrder)
    if (steps[axis] > 0)
      split.push_back(axis);
  std::ranges::stable_sort(split, std::greater(), [&](uint8_t axis) { return steps[axis]; });
  auto next = split.begin();
  for (uint8_t &axis : mesh.order)
    if (steps[axis] > 0)
      axis = *next++;
  return mesh;
}

int64_t sizeOfAxis(const plan::Plan &plan, AxisRole role) {
  int64_t product = 1;
  for (uint32_t a = 0; plan.mesh() && a < plan.mesh()->size(); ++a)
    if (roleOf(text(plan.mesh()->Get(a)->name())) == role)
      product *= plan.mesh()->Get(a)->size();
  return product;
}

} // namespace cleave
