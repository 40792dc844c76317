// Loads checkpoints into any mesh.
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/CopyBox.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/plan/OptimizerFields.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace cleave {
namespace {

/// A half-open box of a global tensor.
struct Region {
  std::vector<int64_t> start, size;
  bool empty() const {
    return std::any_of(size.begin(), size.end(), [](int64_t n) { return n <= 0; });
  }
};

Region intersect(const Region &a, const Region &b) {
  Region out = a;
  for (size_t d = 0; d < a.start.size(); ++d) {
    out.start[d] = std::max(a.start[d], b.start[d]);
    out.size[d] = std::min(a.start[d] + a.size[d], b.start[d] + b.size[d]) - out.start[d];
  }
  return out;
}

/// Appends the part of `a` outside `inner` (a subset of it): at most two boxes per dimension.
void subtract(const Region &a, const Region &inner, std::vector<Region> &rest) {
  Region core = a;
  for (size_t d = 0; d < a.start.size(); ++d) {
    Region low = core, high = core;
    low.size[d] = inner.start[d] - core.start[d];
    high.start[d] = inner.start[d] + inner.size[d];
    high.size[d] = core.start[d] + core.size[d] - high.start[d];
    for (Region &side : {std::ref(low), std::ref(high)})
      if (!side.empty())
        rest.push_back(side);
    core.start[d] = inner.start[d];
    core.size[d] = inner.size[d];
  }
}

class Reader {
public:
  Reader(std::string folder, const Manifest &manifest) : folder(std::move(folder)), manifest(manifest) {}

  /// Copies `region` of the tensor from a piece to the local array (shape `local`) that holds `box`.
  void copy(const ManifestTensor &tensor, const ManifestPiece &piece, const Region &region, const Box &box,
            const std::vector<int64_t> &local, std::byte *to) {
    const SafetensorsFile &file = open(piece.file);
    const SafetensorsEntry &entry = file.entry(piece.key);
    if (entry.shape != piece.size || entry.dtype != tensor.dtype)
      throw environmentError(fmt::format("{}: tensor {}: the manifest says {} [{}], the file holds {} [{}]",
                                         file.name(), piece.key, tensor.dtype, fmt::join(piece.size, ", "), entry.dtype,
                                         fmt::join(entry.shape, ", ")));
    const size_t width = safetensorsWidth(entry.dtype), rank = region.start.size();
    if (rank == 0) {
      file.read(entry, 0, to, width);
      return;
    }
    uint64_t rowBytes = width;
    for (size_t d = 1; d < rank; ++d)
      rowBytes *= uint64_t(piece.size[d]);
    const int64_t rowsAtOnce = std::max<int64_t>(1, int64_t((uint64_t{8} << 20) / rowBytes));
    std::vector<int64_t> from(rank), at(rank), size = region.size, slab = piece.size;
    for (int64_t done = 0; done < region.size[0]; done += rowsAtOnce) {
      size[0] = slab[0] = std::min(rowsAtOnce, region.size[0] - done);
      buffer.resize(size_t(uint64_t(size[0]) * rowBytes));
      file.read(entry, uint64_t(region.start[0] - piece.start[0] + done) * rowBytes, buffer.data(), buffer.size());
      for (size_t d = 0; d < rank; ++d) {
        from[d] = d == 0 ? 0 : region.start[d] - piece.start[d];
        at[d] = region.start[d] - box.globalStart[d] + box.localStart[d] + (d == 0 ? done : 0);
      }
      copyBox(to, local, at, buffer.data(), slab, from, size, width);
    }
  }

private:
  const SafetensorsFile &open(const std::string &name) {
    if (const auto it = files.find(name); it != files.end())
      return it->second;
    SafetensorsFile file(folder + "/" + name);
    const ManifestFile *listed = manifest.file(name);
    if (listed && (file.size() != listed->bytes || file.crc32() != listed->crc32))
      throw environmentError(fmt::format("{}: is not the file that rank {} wrote: it has {} bytes and CRC-32 {:08x}, the "
                                         "manifest says {} and {:08x}",
                                         file.name(), listed->rank, file.size(), file.crc32().value_or(0),
                                         listed->bytes, listed->crc32));
    return files.emplace(name, std::move(file)).first->second;
  }
  std::string folder;
  const Manifest &manifest;
  std::map<std::string, SafetensorsFile> files;
  std::vector<std::byte> buffer;
};

/// Fills one box of a local array from the pieces that cover it.
void fillBox(Reader &reader, const ManifestTensor &tensor, const Box &box, const std::vector<int64_t> &local,
             std::byte *to, const std::string &folder) {
  std::vector<Region> open{{box.globalStart, box.size}};
  for (const ManifestPiece &piece : tensor.pieces) {
    std::vector<Region> rest;
    for (const Region &region : open) {
      const Region common = intersect(region, {piece.start, piece.size});
      if (common.empty()) {
        rest.push_back(region);
        continue;
      }
      reader.copy(tensor, piece, common, box, local, to);
      subtract(region, common, rest);
    }
    open = std::move(rest);
    if (open.empty())
      return;
  }
  throw environmentError(fmt::format("checkpoint {}: tensor {}: no piece covers [{}] + [{}]", folder, tensor.name,
                                     fmt::join(open[0].start, ", "), fmt::join(open[0].size, ", ")));
}

bool isAverage(const plan::Tensor &tensor) {
  return tensor.kind() == plan::TensorKind::State && tensor.parameter() >= 0 &&
         tensor.name()->string_view().ends_with(averageOf(""));
}

/// The manifest's tensor for a tensor of the plan; shape and type must match. A plan without training reads the
/// average of a parameter where there is one. An average that the checkpoint lacks begins as its parameter.
const ManifestTensor &match(const std::map<std::string, const ManifestTensor *> &byName, const plan::Plan &plan,
                            const plan::Tensor &tensor, LoadWhat what, const std::string &folder) {
  const std::string name = tensor.name()->str();
  auto it = byName.find(name);
  if (const auto average = byName.find(averageOf(name));
      what == LoadWhat::WhatIsRead && average != byName.end() && average->second->kind == "state")
    it = average;
  if (it == byName.end() && isAverage(tensor))
    it = byName.find(plan.tensors()->Get(static_cast<uint32_t>(tensor.parameter()))->name()->str());
  if (it == byName.end())
    throw userError(fmt::format("checkpoint {}: tensor {} is missing; the checkpoint is of another model or optimizer",
                                folder, name));
  const std::vector<int64_t> shape = tensorShape(tensor);
  if (it->second->shape != shape || it->second->dtype != safetensorsName(tensor.dtype()))
    throw userError(fmt::format("checkpoint {}: tensor {}: the model has {} [{}], the checkpoint {} [{}]", folder, name,
                                safetensorsName(tensor.dtype()), fmt::join(shape, ", "), it->second->dtype,
                                fmt::join(it->second->shape, ", ")));
  return *it->second;
}

/// States of parameters that the plan has, but does not train: it does not read them.
std::set<std::string> statesWithoutUse(const plan::Plan &plan, const Manifest &manifest) {
  std::set<std::string> untrained, states;
  for (unsigned t = 0; plan.tensors() && t < plan.tensors()->size(); ++t)
    if (const plan::Tensor &tensor = *plan.tensors()->Get(t);
        tensor.kind() == plan::TensorKind::Parameter && !tensor.trainable())
      untrained.insert(tensor.name()->str());
  for (const ManifestTensor &tensor : manifest.tensors)
    if (tensor.kind == "state" && untrained.contains(tensor.name.substr(0, tensor.name.rfind('.'))))
      states.insert(tensor.name);
  return states;
}

std::set<std::string> tensorNames(const plan::Plan &plan) {
  std::set<std::string> names;
  for (unsigned t = 0; plan.tensors() && t < plan.tensors()->size(); ++t)
    if (const auto *name = plan.tensors()->Get(t)->name()) // activations may have no name
      names.insert(name->str());
  return names;
}

} // namespace

void refuseUnknownTensors(const std::string &folder, const Manifest &manifest, const std::set<std::string> &known,
                          bool states) {
  for (const ManifestTensor &tensor : manifest.tensors)
    if (!known.contains(tensor.name) && (states || tensor.kind != "state"))
      throw userError(fmt::format("checkpoint {}: tensor {} [{}] does not exist in the model", folder, tensor.name,
                                  fmt::join(tensor.shape, ", ")));
}

void loadCheckpoint(const std::string &folder, const Manifest &manifest, const plan::Plan &plan, unsigned rank,
                    LoadWhat what, const SlotMemory &memory) {
  if (what != LoadWhat::WhatIsRead) {
    std::set<std::string> known = tensorNames(plan);
    known.merge(statesWithoutUse(plan, manifest));
    refuseUnknownTensors(folder, manifest, known, what == LoadWhat::Everything);
  }
  std::map<std::string, const ManifestTensor *> byName;
  for (const ManifestTensor &tensor : manifest.tensors)
    byName.emplace(tensor.name, &tensor);
  Reader reader(folder, manifest);
  for (uint32_t slot : savedSlots(plan, rank)) {
    const plan::Tensor &tensor = *plan.tensors()->Get(uint32_t(programOf(plan, rank).slots()->Get(slot)->tensor()));
    if (tensor.kind() == plan::TensorKind::State && what != LoadWhat::Everything && !isAverage(tensor))
      continue;
    const ManifestTensor &stored = match(byName, plan, tensor, what, folder);
    const std::vector<int64_t> local = slotShape(plan, rank, slot);
    for (const Box &box : slotBoxes(plan, rank, slot))
      fillBox(reader, stored, box, local, memory(slot).data(), folder);
  }
}

} // namespace cleave
