// Checkpoints: the parameters, buffers and optimizer states of a plan as a folder of safetensors files and a manifest.
//
// Every distinct piece is written once, by the lowest rank that holds it, into that rank's file. The manifest's rename
// is the commit: until then an older checkpoint in the folder stays whole, after it the older files are removed. A
// checkpoint loads into any mesh: a rank assembles its slices from the pieces that cover them.
//
// Works for ranks as threads and as processes alike: each rank calls save and load with its own world and memory.
#pragma once
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

class CheckpointWriter {
public:
  /// `rank` of `plan`; finds once what this rank has to write.
  CheckpointWriter(std::shared_ptr<const PlanFile> plan, unsigned rank);
  /// All ranks call this together. Errors: userError for a folder that cannot be made, environmentError for a full
  /// disk; the checkpoint that was there before then still stands.
  void save(const std::string &folder, const CheckpointInfo &info, World &world, const SlotMemory &memory) const;

private:
  void writePieces(const std::string &file, const SlotMemory &memory) const;
  Manifest manifest(const CheckpointInfo &info, int64_t generation) const;

  std::shared_ptr<const PlanFile> plan;
  unsigned rank;
  std::vector<PieceHome> homes;
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
