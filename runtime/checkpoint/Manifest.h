// The manifest of a checkpoint: which file holds which part of which tensor, and where training stood. Its rename is
// the commit: files that the manifest in place does not name are leftovers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cleave {

/// Where training stood and what it was.
struct CheckpointInfo {
  int64_t step = 0;     ///< training steps done
  int64_t epoch = 1;    ///< epoch of the next step, from 1
  int64_t position = 0; ///< samples of that epoch already used
  uint64_t seed = 0;
  int64_t batch = 0;
  int64_t microbatches = 1;
  std::string model;    ///< the program's name
  std::string options;  ///< the model's options, a JSON object
  std::string training; ///< optimizer and learning rate, a JSON object
  std::string data;     ///< the data set's description, a JSON object
  std::string planHash;
};

/// A box of a global tensor and where it is: the whole of `key` in `file`.
struct ManifestPiece {
  std::string file, key;
  std::vector<int64_t> start, size;
};

struct ManifestTensor {
  std::string name, kind; ///< kind: "parameter", "buffer" or "state"
  std::string dtype;      ///< as safetensors names it
  std::vector<int64_t> shape;
  std::vector<ManifestPiece> pieces;
};

struct Manifest {
  int64_t generation = 1; ///< counts the checkpoints written to this folder
  CheckpointInfo info;
  std::vector<ManifestTensor> tensors;

  const ManifestTensor *find(const std::string &name) const;
};

/// Throws environmentError naming the tensor, rule and value: boxes inside their shapes, plain file names.
Manifest parseManifest(const std::string &text, const std::string &name);
std::string printManifest(const Manifest &manifest);

/// Reads FOLDER/manifest.json. A folder or manifest that is not there is the user's error and named.
Manifest readManifest(const std::string &folder);
/// Only what a program needs to rebuild the model: the manifest's info.
CheckpointInfo readCheckpointInfo(const std::string &folder);

} // namespace cleave
