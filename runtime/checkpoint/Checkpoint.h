// Checkpoints: the parameters, buffers and optimizer states of a plan as a folder of safetensors files and a manifest.
//
// Every distinct piece is written once, by the lowest rank that holds it, into that rank's file. Renaming the manifest
// is the commit: earlier checkpoints stay intact until then, and only after it those beyond the number to keep are
// removed. After an error the manifest in the folder decides what belongs to a checkpoint. Before the commit another
// rank reads every file back, and rank 0 verifies that it can see all of them. A checkpoint can be loaded into any
// mesh: a rank assembles its slices from the pieces that cover them.
//
// File names contain the name of the run, so no two jobs write, rename or remove the same file. Only files of runs that
// the folder's manifest or lock names are removed, if no checkpoint needs them (Leftovers.h).
//
// Ranks may be threads or processes: each calls save and load with its own world and memory.
#pragma once
#include "runtime/checkpoint/FolderLock.h"
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/comm/Communicator.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/Slices.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <span>

namespace cleave {

/// Memory of a persistent slot of this rank's program (Executor::persistent).
using SlotMemory = std::function<std::span<std::byte>(unsigned slot)>;

/// A box of a global tensor, and the lowest rank that holds it.
struct PieceHome {
  uint32_t tensor; ///< index of Plan.tensors
  uint32_t rank, slot;
  Box box;
};

/// Every distinct piece of the plan's parameters, buffers and states, ordered by rank, then slot.
std::vector<PieceHome> pieceHomes(const plan::Plan &plan);

struct CheckpointFolder {
  std::string path;
  int64_t keep = 2;                                          ///< checkpoints to keep in the folder
  bool overwrite = false;                                    ///< a checkpoint of another training may be replaced
  bool resumed = false;                                      ///< this training continues from the folder's checkpoint
  std::function<void(const std::string &warning)> warn = {}; ///< called on rank 0; by default warnings are dropped
};

/// The folder's checkpoint that the next one follows; nullopt if there is none, or if it is unreadable and may be
/// overwritten. Throws userError if this training must not follow it. (The checkpoint may change until the writer owns
/// the folder, so the writer checks again.)
std::optional<Manifest> checkpointToFollow(const CheckpointFolder &folder);

class CheckpointWriter {
public:
  /// Collective over all ranks. Rank 0 locks the folder for this run; the others verify that they see the same folder.
  /// Errors: userError if the folder cannot be created, is in use by another training, or holds a checkpoint that must
  /// not be followed; environmentError if ranks do not share it.
  CheckpointWriter(std::shared_ptr<const PlanFile> plan, unsigned rank, RankEndpoint &world, CheckpointFolder folder);
  /// Collective over all ranks. Throws environmentError if the disk is full, a file is not visible to other ranks, or
  /// another run has taken the folder; earlier checkpoints stay intact. A superseded file that cannot be removed is a
  /// warning.
  void save(const CheckpointInfo &info, const SlotMemory &memory);
  /// Call after the last checkpoint: unlocks the folder.
  void close();

private:
  ManifestFile writePieces(const std::string &name, const SlotMemory &memory) const;
  std::vector<ManifestFile> agreeOnFiles(const ManifestFile &mine) const;
  void verify(const ManifestFile &file, bool contents) const;
  Manifest manifest(const CheckpointInfo &info, std::vector<ManifestFile> files) const;
  void commit(Manifest &manifest) const;
  void rename(const Manifest &manifest) const;
  void removeSuperseded(const std::set<std::string> &runs) const;
  std::string pieceFile(int64_t step, unsigned rank) const;

  std::shared_ptr<const PlanFile> plan;
  unsigned rank;
  RankEndpoint &world;
  CheckpointFolder folder;
  std::vector<PieceHome> homes;
  std::string run;
  int64_t generation = 0;           ///< of the last checkpoint
  std::unique_ptr<FolderLock> lock; ///< rank 0 only
};

enum class LoadWhat {
  Everything,          ///< to resume training
  ParametersAndBuffers, ///< for evaluation with the plan of a training: also averages of parameters
  WhatIsRead            ///< for a plan without training, which has only the parameters and buffers that it reads
};

/// Throws userError for the first parameter or buffer of a checkpoint that is not in `known`; `states`: also for an
/// optimizer state.
void refuseUnknownTensors(const std::string &folder, const Manifest &manifest, const std::set<std::string> &known,
                          bool states = false);

/// Loads this rank's persistent slots. Errors name the tensor and the value: a tensor that is missing, has another
/// shape or type, is not covered by pieces, or is in a corrupt file; unless WhatIsRead also a tensor that the plan does
/// not have. The states of a parameter that the plan does not train are not read.
void loadCheckpoint(const std::string &folder, const Manifest &manifest, const plan::Plan &plan, unsigned rank,
                    LoadWhat what, const SlotMemory &memory);

} // namespace cleave
