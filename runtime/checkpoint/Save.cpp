// Writes checkpoints.
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/CopyBox.h"
#include "runtime/checkpoint/Plan.h"
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <sstream>
#include <thread>
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

/// "fc1.weight", or "fc1.weight[0:256,0:784]" for a part.
static std::string pieceKey(const plan::Tensor &tensor, const Box &box) {
  std::string ranges;
  bool whole = true;
  for (size_t d = 0; d < box.size.size(); ++d) {
    whole = whole && box.size[d] == tensor.shape()->Get(unsigned(d));
    ranges += fmt::format("{}{}:{}", d ? "," : "", box.globalStart[d], box.globalStart[d] + box.size[d]);
  }
  return whole ? tensor.name()->str() : fmt::format("{}[{}]", tensor.name()->str(), ranges);
}

static const char *kindName(plan::TensorKind kind) {
  return kind == plan::TensorKind::Parameter ? "parameter" : kind == plan::TensorKind::Buffer ? "buffer" : "state";
}

/// The folder's current manifest; nullopt if there is none.
static std::optional<Manifest> lastManifest(const CheckpointFolder &folder) {
  std::error_code error;
  if (fs::symlink_status(folder.path + "/manifest.json", error).type() == fs::file_type::not_found)
    return std::nullopt;
  try {
    return readManifest(folder.path);
  } catch (const Error &) {
    if (folder.overwrite) // the current manifest is unreadable
      return std::nullopt;
    throw;
  }
}

std::optional<Manifest> checkpointToFollow(const CheckpointFolder &folder) {
  const bool may = folder.resumed || folder.overwrite;
  std::optional<Manifest> last;
  try {
    last = lastManifest(folder);
  } catch (const Error &error) {
    if (may)
      throw;
    throw Error(error.status, fmt::format("{}; --overwrite starts over and replaces it", error.what()));
  }
  if (last && !may)
    throw userError(fmt::format("--checkpoint {}: holds a checkpoint of {} after step {}: --resume continues from it, "
                                "--overwrite starts over and replaces it",
                                folder.path, last->info.model, last->info.step));
  return last;
}

/// Names of all files that a manifest and the checkpoints it keeps need.
struct Needed {
  std::set<std::string> names;
  bool known = true; ///< false: the manifest of a kept checkpoint is unreadable
};

static Needed neededBy(const std::string &folder, const Manifest &manifest) {
  Needed needed;
  const auto add = [&](const Manifest &each) {
    for (const ManifestFile &file : each.files)
      needed.names.insert(file.name);
  };
  needed.names.insert(manifest.ownFile());
  add(manifest);
  for (const KeptCheckpoint &kept : manifest.earlier) {
    needed.names.insert(kept.manifest);
    const std::string path = folder + "/" + kept.manifest;
    try {
      add(parseManifest(readTextFile(path), path));
    } catch (const Error &) {
      needed.known = false;
    }
  }
  return needed;
}

CheckpointWriter::CheckpointWriter(std::shared_ptr<const PlanFile> file, unsigned rank, World &world,
                                   CheckpointFolder where)
    : plan(std::move(file)), rank(rank), world(world), folder(std::move(where)), homes(pieceHomes(plan->plan())) {
  makeFolders(folder.path, "--checkpoint");
  std::vector<uint8_t> said;
  if (rank == 0) {
    run = newRunName();
    std::optional<Needed> needed;
    lock = std::make_unique<FolderLock>(folder.path, run, [&](const std::string &name) {
      if (!needed) {
        const auto last = lastManifest(folder);
        needed = last ? neededBy(folder.path, *last) : Needed{};
      }
      return !needed->known || needed->names.contains(name);
    });
    const auto last = checkpointToFollow(folder);
    generation = last ? last->generation : 0;
    const std::string text = fmt::format("{} {}", run, generation);
    said.assign(text.begin(), text.end());
  }
  world.broadcast(said);
  const std::string text(said.begin(), said.end());
  run = text.substr(0, text.find(' '));
  generation = std::stoll(text.substr(text.find(' ')));
  // A network file system may show a new file with a delay.
  for (int attempt = 0; lockedBy(folder.path) != run; ++attempt) {
    if (attempt == 50)
      throw environmentError(
          fmt::format("--checkpoint {}: rank {} does not see the folder that rank 0 writes to; all ranks "
                      "must see the same folder, on a shared file system",
                      folder.path, rank));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  world.barrier();
}

std::string CheckpointWriter::pieceFile(int64_t step, unsigned of) const {
  return fmt::format("step-{:08}-{}-{}.rank-{:04}.safetensors", step, run, generation, of);
}

Manifest CheckpointWriter::manifest(const CheckpointInfo &info, std::vector<ManifestFile> files) const {
  Manifest manifest{generation, run, info, std::move(files), {}, {}};
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
        {pieceFile(info.step, home.rank), pieceKey(tensor, home.box), home.box.globalStart, home.box.size});
  }
  return manifest;
}

/// Writes and syncs this rank's pieces. If it has none, writes no file and returns an empty name.
ManifestFile CheckpointWriter::writePieces(const std::string &name, const SlotMemory &memory) const {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  std::vector<const PieceHome *> mine;
  for (const PieceHome &home : homes)
    if (home.rank == rank) {
      const plan::Tensor &tensor = *plan->plan().tensors()->Get(home.tensor);
      entries.push_back({pieceKey(tensor, home.box), {safetensorsName(tensor.dtype()), home.box.size}});
      mine.push_back(&home);
    }
  if (mine.empty())
    return {};
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
  AtomicFile file(folder.path + "/" + name, run);
  file.write(head.data(), head.size());
  eachPiece([&](const std::byte *data, size_t bytes) { file.write(data, bytes); });
  file.commit();
  syncFolder(folder.path);
  const uint64_t data = entries.back().second.end;
  return {name, head.size() + data, joinedCrc32(crc32Of(0, head.data(), head.size()), crc32, data), rank};
}

/// Collects the descriptions of all ranks' files on all ranks.
std::vector<ManifestFile> CheckpointWriter::agreeOnFiles(const ManifestFile &mine) const {
  const std::string text = fmt::format("{} {} {}", mine.bytes, mine.crc32, mine.name);
  std::vector<uint8_t> all;
  for (const std::vector<uint8_t> &each : world.gather({reinterpret_cast<const uint8_t *>(text.data()), text.size()})) {
    all.insert(all.end(), each.begin(), each.end());
    all.push_back('\n');
  }
  world.broadcast(all);
  std::vector<ManifestFile> files;
  std::istringstream lines(std::string(all.begin(), all.end()));
  std::string line;
  for (uint32_t from = 0; std::getline(lines, line); ++from) {
    ManifestFile file;
    std::istringstream(line) >> file.bytes >> file.crc32 >> file.name;
    file.rank = from;
    files.push_back(std::move(file));
  }
  return files;
}

/// Throws environmentError if this rank does not see the file with its written contents.
void CheckpointWriter::verify(const ManifestFile &file, bool contents) const {
  if (file.name.empty())
    return;
  const std::string path = folder.path + "/" + file.name;
  try {
    const InputFile there(path);
    if (there.size() != file.bytes)
      throw environmentError(fmt::format("{}: {} bytes expected, found {}", path, file.bytes, there.size()));
    if (contents)
      if (const auto found = SafetensorsFile(path).crc32(); found != file.crc32)
        throw environmentError(
            fmt::format("{}: CRC-32 {:08x} expected, found {:08x}", path, file.crc32, found.value_or(0)));
  } catch (const Error &error) {
    throw environmentError(
        fmt::format("checkpoint: rank {} does not see what rank {} wrote: {}; all ranks must see the same "
                    "folder, on a shared file system",
                    rank, file.rank, error.what()));
  }
}

/// Removes the files of a checkpoint that is no longer kept, and its manifest.
static void removeKept(const std::string &folder, const KeptCheckpoint &kept, const std::set<std::string> &needed) {
  std::error_code error;
  const std::string path = folder + "/" + kept.manifest;
  try {
    for (const ManifestFile &file : parseManifest(readTextFile(path), path).files)
      if (!needed.contains(file.name))
        fs::remove(folder + "/" + file.name, error);
    if (!needed.contains(kept.manifest))
      fs::remove(path, error);
  } catch (const Error &) { // unreadable, so its files are unknown
  }
}

/// Rank 0, after all files exist: makes `made` the current manifest. Returns the checkpoints that are no longer kept.
std::vector<KeptCheckpoint> CheckpointWriter::commit(Manifest &made) const {
  std::vector<KeptCheckpoint> old;
  if (const auto last = lastManifest(folder)) {
    old.push_back({last->ownFile(), last->info.step});
    old.insert(old.end(), last->earlier.begin(), last->earlier.end());
  }
  const auto kept = old.begin() + static_cast<std::ptrdiff_t>(std::min(old.size(), size_t(folder.keep - 1)));
  made.earlier.assign(old.begin(), kept);
  old.erase(old.begin(), kept);
  const std::string text = printManifest(made);
  AtomicFile own(folder.path + "/" + made.ownFile(), run), last(folder.path + "/manifest.json", run);
  for (AtomicFile *file : {&own, &last}) {
    file->write(text.data(), text.size());
    file->finish();
  }
  lock->whileOwned([&] {
    own.commit();
    last.commit();
  });
  return old;
}

void CheckpointWriter::save(const CheckpointInfo &info, const SlotMemory &memory) {
  ++generation;
  const std::string mine = folder.path + "/" + pieceFile(info.step, rank);
  Manifest made;
  std::vector<KeptCheckpoint> old;
  try {
    made = manifest(info, agreeOnFiles(writePieces(pieceFile(info.step, rank), memory)));
    verify(made.files[(rank + 1) % made.files.size()], true); // one other rank reads each file's contents
    if (rank == 0)
      for (const ManifestFile &file : made.files)
        verify(file, false);
  } catch (...) { // rank 0 waits for this rank, so no manifest lists its file
    unlink(mine.c_str());
    throw;
  }
  world.barrier();
  if (rank == 0) {
    try {
      std::erase_if(made.files, [](const ManifestFile &file) { return file.name.empty(); });
      old = commit(made);
    } catch (...) {
      unlink(mine.c_str());
      throw;
    }
    syncFolder(folder.path);
    const Needed needed = neededBy(folder.path, made);
    for (const KeptCheckpoint &kept : old)
      removeKept(folder.path, kept, needed.names);
  }
  world.barrier();
}

void CheckpointWriter::close() {
  if (lock)
    lock->release();
  lock.reset();
}

} // namespace cleave
