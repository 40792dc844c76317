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
#include <iterator>
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
  if (!hasCheckpoint(folder.path))
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

CheckpointWriter::CheckpointWriter(std::shared_ptr<const PlanFile> file, unsigned rank, RankEndpoint &world,
                                   CheckpointFolder where)
    : plan(std::move(file)), rank(rank), world(world), folder(std::move(where)), homes(pieceHomes(plan->plan())) {
  makeFolders(folder.path, "--checkpoint");
  std::vector<uint8_t> said;
  if (rank == 0) {
    run = newRunName();
    lock = std::make_unique<FolderLock>(folder.path, run);
    removeSuperseded(lock->earlierOwners()); // so that none of them can rename a manifest any more
    const auto last = checkpointToFollow(folder);
    generation = last ? last->generation : 0;
    if (last)
      removeSuperseded(runsOf(*last));
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
  return pieceFileName(step, run, generation, of);
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

/// Rank 0: removes files of these runs that no checkpoint of the folder needs.
void CheckpointWriter::removeSuperseded(const std::set<std::string> &runs) const {
  if (const std::string warning = removeLeftovers(folder.path, runs); !warning.empty() && folder.warn)
    folder.warn(warning);
}

/// Whether the folder's manifest is this one.
static bool isCurrent(const std::string &folder, const Manifest &manifest) {
  try {
    const Manifest now = readManifest(folder);
    return now.run == manifest.run && now.generation == manifest.generation;
  } catch (const Error &) {
    return false;
  }
}

/// Rank 0, after all files exist: makes `made` the current manifest.
void CheckpointWriter::commit(Manifest &made) const {
  std::set<std::string> runs = lock->earlierOwners();
  if (const auto last = lastManifest(folder)) {
    made.earlier.push_back({last->ownFile(), last->info.step});
    made.earlier.insert(made.earlier.end(), last->earlier.begin(), last->earlier.end());
    made.earlier.resize(std::min(made.earlier.size(), size_t(folder.keep - 1)));
    runs.merge(runsOf(*last));
  }
  const std::set<std::string> present = runsIn(folder.path);
  std::set_intersection(runs.begin(), runs.end(), present.begin(), present.end(), std::back_inserter(made.runs));
  try {
    rename(made);
  } catch (const Error &) { // the call that failed may have done its work
    if (!isCurrent(folder.path, made)) {
      removeSuperseded({run});
      throw;
    }
  }
  syncFolder(folder.path); // before the files of the previous checkpoint go
}

/// Writes both files of the manifest. Each rename becomes durable after all that it depends on.
void CheckpointWriter::rename(const Manifest &made) const {
  const std::string text = printManifest(made);
  AtomicFile own(folder.path + "/" + made.ownFile(), run), last(folder.path + "/manifest.json", run);
  for (AtomicFile *file : {&own, &last}) {
    file->write(text.data(), text.size());
    file->finish();
  }
  lock->whileOwned([&] {
    own.commit();
    syncFolder(folder.path);
    last.commit();
  });
}

void CheckpointWriter::save(const CheckpointInfo &info, const SlotMemory &memory) {
  ++generation;
  Manifest made;
  try {
    made = manifest(info, agreeOnFiles(writePieces(pieceFile(info.step, rank), memory)));
    verify(made.files[(rank + 1) % made.files.size()], true); // one other rank reads each file's contents
    if (rank == 0)
      for (const ManifestFile &file : made.files)
        verify(file, false);
  } catch (...) { // rank 0 waits for this rank, so no manifest lists its file
    unlink((folder.path + "/" + pieceFile(info.step, rank)).c_str());
    throw;
  }
  world.barrier();
  if (rank == 0) {
    std::erase_if(made.files, [](const ManifestFile &file) { return file.name.empty(); });
    commit(made);
    removeSuperseded({made.runs.begin(), made.runs.end()});
  }
  world.barrier();
}

void CheckpointWriter::close() {
  if (lock)
    lock->release();
  lock.reset();
}

} // namespace cleave
