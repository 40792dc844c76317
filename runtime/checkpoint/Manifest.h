// The manifest of a checkpoint: which file holds which part of which tensor, and where training stood; and which earlier
// checkpoints the folder keeps. Its rename is the commit. A SHA-256 covers all that it says.
#pragma once
#include <cstdint>
#include <optional>
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

/// A file of tensors, as the rank that wrote it left it.
struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32 = 0; ///< of the whole file
  uint32_t rank = 0;
};

/// A checkpoint that was written before and is kept.
struct KeptCheckpoint {
  std::string manifest; ///< its file
  int64_t step = 0;
};

struct Manifest {
  int64_t generation = 1; ///< counts the checkpoints written to this folder
  std::string run;        ///< who wrote it (FolderLock.h)
  CheckpointInfo info;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
  std::vector<KeptCheckpoint> earlier; ///< newest first

  const ManifestTensor *find(const std::string &name) const;
  const ManifestFile *file(const std::string &name) const;
  /// The file that keeps this manifest once a newer one is "manifest.json".
  std::string ownFile() const;
};

/// Steps, epochs and positions stay below this, so that JSON's numbers and sums of them are exact.
constexpr int64_t mostSteps = int64_t{1} << 53;

/// Throws environmentError naming the tensor, rule and value: the checksum, boxes inside their shapes, plain file names,
/// every file listed.
Manifest parseManifest(const std::string &text, const std::string &name);
std::string printManifest(const Manifest &manifest);
/// A manifest's JSON with the checksum that belongs to it, whatever it says; for tests. Throws environmentError where it
/// is no JSON object.
std::string sealManifest(const std::string &text);

/// Reads the manifest of a folder's last checkpoint, or of the one after `step`. A folder, manifest or step that is not
/// there is the user's error and named.
Manifest readManifest(const std::string &folder, std::optional<int64_t> step = std::nullopt);
/// Only what a program needs to rebuild the model: the manifest's info.
CheckpointInfo readCheckpointInfo(const std::string &folder, std::optional<int64_t> step = std::nullopt);

} // namespace cleave
