// The names of a checkpoint folder's files, and the removal of those that nothing needs any more.
//
// A file belongs to a run if its whole name is one that Cleave gives with the run's 16 random digits in it. It may be
// removed if the run is known from the folder's manifest or lock, no longer writes, and neither the manifest nor the
// checkpoints that it keeps list the file. Without a manifest nothing supersedes a checkpoint that has its own
// manifest. Everything else in the folder stays.
#pragma once
#include "runtime/checkpoint/Manifest.h"

#include <set>
#include <string>
#include <vector>

namespace cleave {

/// 16 random hexadecimal digits.
std::string newRunName();
bool isRunName(const std::string &name);

/// "step-STEP-RUN-GENERATION.rank-RANK.safetensors": a rank's file of a checkpoint.
std::string pieceFileName(int64_t step, const std::string &run, int64_t generation, unsigned rank);
/// "step-STEP-RUN-GENERATION.manifest.json".
std::string manifestFileName(int64_t step, const std::string &run, int64_t generation);
/// The run that gave a file this name, also of one not renamed yet; "" if Cleave gives no such name.
std::string runOfFile(const std::string &name);
/// Whether this is the name of a lock that has not been renamed (FolderLock.h).
bool isUnfinishedLock(const std::string &name);

/// Names of the files in a folder; those that could be listed.
std::vector<std::string> filesIn(const std::string &folder);
/// The runs that have files in the folder.
std::set<std::string> runsIn(const std::string &folder);

/// The paths in a folder that only checkpoints may have: of its manifest and lock, there or not, and of all files of
/// runs.
std::vector<std::string> checkpointPaths(const std::string &folder);

/// Files that the folder's current checkpoint and those that it keeps need.
struct NeededFiles {
  std::set<std::string> names; ///< listed by a manifest
  std::set<std::string> stems; ///< beginnings of names of the checkpoints, also if their own manifest is unreadable
  bool known = true;           ///< false: the current manifest is unreadable, so any file may be needed
  bool contains(const std::string &name) const;
};
NeededFiles neededFiles(const std::string &folder);

/// The runs of a manifest that may have files in the folder: those it lists, its own, and those of its files.
std::set<std::string> runsOf(const Manifest &manifest);

/// Removes the files of these runs that are not needed. Returns a warning that names the first file that could not be
/// removed, or "".
std::string removeLeftovers(const std::string &folder, const std::set<std::string> &runs);

} // namespace cleave
