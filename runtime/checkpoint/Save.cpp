// Writing checkpoints.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Files.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <unistd.h>

namespace cleave {
namespace fs = std::filesystem;

std::vector<PieceHome> pieceHomes(const plan::Plan &plan) {
  std::vector<PieceHome> homes;
  std::set<std::tuple<uint32_t, std::vector<int64_t>, std::vector<int64_t>>> seen;
  for (uint32_t rank = 0; rank < plan.ranks()->size(); ++rank)
    for (uint32_t slot : savedSlots(plan, rank)) {
      const auto tensor = uint32_t(programOf(plan, rank).slots()->Get(slot)->tensor());
      for (Box &box : slotBoxes(plan, rank, slot))
        if (seen.emplace(tensor, box.globalStart, box.size).second)
          homes.push_back({tensor, rank, slot, std::move(box)});
    }
  return homes;
}

/// "fc1.weight", or "fc1.weight[0:256,0:784]" for a part of it.
static std::string pieceKey(const plan::Tensor &tensor, const Box &box) {
  std::string ranges;
  bool whole = true;
  for (size_t d = 0; d < box.size.size(); ++d) {
    whole = whole && box.size[d] == tensor.shape()->Get(unsigned(d));
    ranges += fmt::format("{}{}:{}", d ? "," : "", box.globalStart[d], box.globalStart[d] + box.size[d]);
  }
  return whole ? tensor.name()->str() : fmt::format("{}[{}]", tensor.name()->str(), ranges);
}

static std::string pieceFile(int64_t generation, int64_t step, unsigned rank) {
  return fmt::format("step-{:08}-{}.rank-{:04}.safetensors", step, generation, rank);
}

static const char *kindName(plan::TensorKind kind) {
  return kind == plan::TensorKind::Parameter ? "parameter" : kind == plan::TensorKind::Buffer ? "buffer" : "state";
}

CheckpointWriter::CheckpointWriter(std::shared_ptr<const PlanFile> file, unsigned rank)
    : plan(std::move(file)), rank(rank), homes(pieceHomes(plan->plan())) {}

Manifest CheckpointWriter::manifest(const CheckpointInfo &info, int64_t generation) const {
  Manifest manifest{generation, info, {}};
  std::map<uint32_t, size_t> place;
  std::set<std::string> names;
  for (const PieceHome &home : homes) {
    const plan::Tensor &tensor = *plan->plan().tensors()->Get(home.tensor);
    const auto [it, added] = place.emplace(home.tensor, manifest.tensors.size());
    if (added) {
      if (!names.insert(tensor.name()->str()).second)
        throw environmentError(
            fmt::format("checkpoint: tensor names must differ, two are called {}", tensor.name()->str()));
      manifest.tensors.push_back(
          {tensor.name()->str(), kindName(tensor.kind()), safetensorsName(tensor.dtype()), tensorShape(tensor), {}});
    }
    manifest.tensors[it->second].pieces.push_back(
        {pieceFile(generation, info.step, home.rank), pieceKey(tensor, home.box), home.box.globalStart, home.box.size});
  }
  return manifest;
}

void CheckpointWriter::writePieces(const std::string &path, const SlotMemory &memory) const {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  std::vector<const PieceHome *> mine;
  for (const PieceHome &home : homes)
    if (home.rank == rank) {
      const plan::Tensor &tensor = *plan->plan().tensors()->Get(home.tensor);
      entries.push_back({pieceKey(tensor, home.box), {safetensorsName(tensor.dtype()), home.box.size}});
      mine.push_back(&home);
    }
  if (mine.empty())
    return;
  placeSafetensors(entries);
  std::vector<std::byte> packed;
  const auto eachPiece = [&](auto use) {
    for (size_t i = 0; i < mine.size(); ++i) {
      const PieceHome &home = *mine[i];
      const std::vector<int64_t> local = slotShape(plan->plan(), rank, home.slot);
      const std::span<const std::byte> from = memory(home.slot);
      const size_t bytes = size_t(entries[i].second.end - entries[i].second.begin);
      if (home.box.size == local) {
        use(from.data(), bytes);
        continue;
      }
      packed.resize(bytes);
      const std::vector<int64_t> origin(local.size(), 0);
      copyBox(packed.data(), home.box.size, origin, from.data(), local, home.box.localStart, home.box.size,
              safetensorsWidth(entries[i].second.dtype));
      use(packed.data(), bytes);
    }
  };
  uint32_t crc32 = 0;
  eachPiece([&](const std::byte *data, size_t bytes) { crc32 = crc32Of(crc32, data, bytes); });
  const std::string head = layOutSafetensors(entries, crc32);
  AtomicFile file(path);
  file.write(head.data(), head.size());
  eachPiece([&](const std::byte *data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

/// One more than the generation of the manifest in place; 1 where there is none or it is torn.
static int64_t nextGeneration(const std::string &folder) {
  try {
    return readManifest(folder).generation + 1;
  } catch (const Error &) {
    return 1;
  }
}

/// Removes files of ours that the manifest does not name: an older checkpoint's, or leftovers of a failed one.
static void removeOld(const std::string &folder, const Manifest &manifest) {
  std::set<std::string> keep;
  for (const ManifestTensor &tensor : manifest.tensors)
    for (const ManifestPiece &piece : tensor.pieces)
      keep.insert(piece.file);
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("step-") && name.find(".safetensors") != std::string::npos && !keep.contains(name))
      old.push_back(it->path());
  }
  for (const fs::path &path : old)
    fs::remove(path, error);
}

void CheckpointWriter::save(const std::string &folder, const CheckpointInfo &info, World &world,
                            const SlotMemory &memory) const {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw userError(
        fmt::format("--checkpoint {}: cannot be made: {}", folder, error ? error.message() : "not a folder"));
  const int64_t generation = nextGeneration(folder);
  world.barrier(); // everybody has read the old manifest before a new one can be committed
  const std::string mine = folder + "/" + pieceFile(generation, info.step, rank);
  try {
    writePieces(mine, memory);
    world.barrier(); // every file is in place
    if (rank == 0) {
      syncFolder(folder);
      const Manifest manifest = this->manifest(info, generation);
      const std::string text = printManifest(manifest);
      AtomicFile file(folder + "/manifest.json");
      file.write(text.data(), text.size());
      file.commit();
      syncFolder(folder);
      removeOld(folder, manifest);
    }
  } catch (...) {
    unlink(mine.c_str()); // not committed: nobody refers to it
    throw;
  }
  world.barrier();
}

} // namespace cleave
