// The manifest of a checkpoint: which file holds which part of which tensor, the state of training, and the earlier
// checkpoints kept in the folder. Renaming it is the commit. A SHA-256 covers its content.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// The state of a training and its configuration.
struct CheckpointInfo {
  int64_t step = 0;     ///< training steps done
  int64_t epoch = 1;    ///< epoch of the next step, from 1
  int64_t position = 0; ///< samples of that epoch already used
  uint64_t seed = 0;
  int64_t batch = 0;
  int64_t microbatches = 1;
  int64_t evalBatch = 0; ///< the batch of evaluation; 0: `batch`
  std::string model;     ///< the program's name
  std::string options;   ///< the model's options, a JSON object
  std::string training;  ///< optimizer and learning rate, a JSON object
  std::string data;      ///< the data set's description, a JSON object
  std::string planHash;
  int64_t ranks = 0, threads = 0; ///< of the training, threads of each rank; 0: not known
  std::string dataState = {};     ///< which data (runtime/data/DataState.h), a JSON object; empty: not known
};

/// A box of a global tensor, stored as the whole of `key` in `file`.
struct ManifestPiece {
  std::string file, key;
  std::vector<int64_t> start, size;
};

struct ManifestTensor {
  std::string name, kind; ///< kind: "parameter", "buffer" or "state"
  std::string dtype;      ///< in safetensors' notation
  std::vector<int64_t> shape;
  std::vector<ManifestPiece> pieces;
};

/// A file of tensors written by one rank.
struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32 = 0; ///< of the whole file
  uint32_t rank = 0;
};

/// An earlier checkpoint that is kept.
struct KeptCheckpoint {
  std::string manifest; ///< its file
  int64_t step = 0;
};

struct Manifest {
  int64_t generation = 1; ///< number of checkpoints written to this folder so far
  std::string run;        ///< the run that wrote it (FolderLock.h)
  CheckpointInfo info;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  std::vector<KeptCheckpoint> earlier; ///< newest first
  std::vector<std::string> runs = {};  ///< runs that had files in the folder when this was written (Leftovers.h)

  const ManifestTensor *find(const std::string &name) const;
  const ManifestFile *file(const std::string &name) const;
  /// The file name of this manifest when a newer one is "manifest.json".
  std::string ownFile() const;
};

/// Steps, epochs and positions are below this, so that JSON numbers and their sums are exact.
constexpr int64_t mostSteps = int64_t{1} << 53;

/// Throws environmentError that names the tensor, rule and value. Checks the checksum, boxes within shapes, plain file
/// names, and that every file is listed.
Manifest parseManifest(const std::string &text, const std::string &name);
std::string printManifest(const Manifest &manifest);
/// Replaces the checksum of a manifest's JSON by the correct one, without other checks; for tests. Throws
/// environmentError if it is not a JSON object.
std::string sealManifest(const std::string &text);

/// Whether the folder exists and has a manifest, valid or not. Throws userError if that cannot be told.
bool hasCheckpoint(const std::string &folder);
/// Reads the manifest of a folder's last checkpoint, or of the one after `step`. A missing folder, manifest or step is
/// a user error that names it.
Manifest readManifest(const std::string &folder, std::optional<int64_t> step = std::nullopt);
/// Only the information needed to rebuild the model.
CheckpointInfo readCheckpointInfo(const std::string &folder, std::optional<int64_t> step = std::nullopt);

} // namespace cleave
