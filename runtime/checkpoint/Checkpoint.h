// Checkpoints: the parameters, buffers and optimizer states of a plan as a folder of safetensors files and a manifest.
//
// Every distinct piece is written once, by the lowest rank that holds it, into that rank's file. The manifest's rename
// is the commit: until then the checkpoints in the folder stay as they are, after it those beyond the number to keep are
// removed. Before it every file is read back by another rank, and rank 0 sees all of them. A checkpoint loads into any
// mesh: a rank assembles its slices from the pieces that cover them.
//
// Names carry the run that wrote them, so no two jobs ever write, rename or remove the same file; only files that a
// manifest in the folder lists are removed, and what an ended run left behind (FolderLock.h).
//
// Works for ranks as threads and as processes alike: each rank calls save and load with its own world and memory.
#pragma once
#include "runtime/checkpoint/FolderLock.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Slices.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace cleave {

/// Memory of a persistent slot of this rank's program (Executor::persistent).
using SlotMemory = std::function<std::span<std::byte>(unsigned slot)>;

/// A box of a global tensor and the lowest rank that holds it.
struct PieceHome {
  uint32_t tensor; ///< index of Plan.tensors
  uint32_t rank, slot;
  Box box;
};

/// Every distinct piece of the plan's parameters, buffers and states, by rank, then slot.
std::vector<PieceHome> pieceHomes(const plan::Plan &plan);

struct CheckpointFolder {
  std::string path;
  int64_t keep = 2;         ///< checkpoints that stay in the folder
  bool overwrite = false; ///< a checkpoint that is there may be followed by one of another training
  bool resumed = false;   ///< this training goes on from what is there
};

/// The checkpoint in the folder, which the next one follows; none where there is none, or none that can be read is to be
/// overwritten. Throws userError where this training may not follow it. (It can change until the writer has the folder, so
/// the writer asks again.)
std::optional<Manifest> checkpointToFollow(const CheckpointFolder &folder);

class CheckpointWriter {
public:
  /// All ranks call this together. Rank 0 takes the folder for this run; the others see that it is the same folder.
  /// Errors: userError for a folder that cannot be made, that another process trains with, or that holds a checkpoint
  /// which may not be followed; environmentError for one that ranks do not share.
  CheckpointWriter(std::shared_ptr<const PlanFile> plan, unsigned rank, World &world, CheckpointFolder folder);
  /// All ranks call this together. Errors: environmentError for a full disk, a file that other ranks do not see, or a
  /// folder that another run has taken; the checkpoints that were there before then still stand.
  void save(const CheckpointInfo &info, const SlotMemory &memory);
  /// After the last checkpoint: gives the folder free.
  void close();

private:
  ManifestFile writePieces(const std::string &name, const SlotMemory &memory) const;
  std::vector<ManifestFile> agreeOnFiles(const ManifestFile &mine) const;
  void verify(const ManifestFile &file, bool contents) const;
  Manifest manifest(const CheckpointInfo &info, std::vector<ManifestFile> files) const;
  std::vector<KeptCheckpoint> commit(Manifest &manifest) const;
  std::string pieceFile(int64_t step, unsigned rank) const;

  std::shared_ptr<const PlanFile> plan;
  unsigned rank;
  World &world;
  CheckpointFolder folder;
  std::vector<PieceHome> homes;
  std::string run;
  int64_t generation = 0;           ///< of the last checkpoint
  std::unique_ptr<FolderLock> lock; ///< rank 0's
};

enum class LoadWhat {
  Everything,          ///< to resume training
  ParametersAndBuffers ///< to evaluate: optimizer states keep their initial values
};

/// Fills this rank's persistent slots. Errors name the tensor and the value: a tensor that is missing, of another shape
/// or type, not covered by pieces, or in a file that is torn; with Everything also one that the plan does not have.
void loadCheckpoint(const std::string &folder, const Manifest &manifest, const plan::Plan &plan, unsigned rank,
                    LoadWhat what, const SlotMemory &memory);

} // namespace cleave
