// Ensures that only one training at a time writes checkpoints to a folder. The file "lock.json" names the owner.
//
// The owner is a run, identified by 16 random hexadecimal digits in all of its file names. A lock is stale if its run
// has ended, its process is gone or stopped (the other ranks have given it up), or, on another host, if it has not been
// refreshed for `staleSeconds`. A process that takes over a stale lock becomes the owner. The lock names earlier owners
// that left files, which the owner removes (Leftovers.h). If the previous owner resumes later, it finds that it no
// longer owns the folder, or its rename fails, so it changes nothing. If the file system supports flock, no takeover
// can happen between a check and a rename.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace cleave {

class FolderLock {
public:
  /// An owner refreshes its lock every `beatSeconds`, for observers on other hosts.
  static constexpr double beatSeconds = 5, staleSeconds = 30;

  /// Locks the folder for `run`. Throws userError that names the owner's host and process if it is locked. Removes
  /// locks of other processes that ended before they had the folder.
  FolderLock(std::string folder, std::string run);
  /// Marks the run as ended; the next owner removes its leftovers.
  ~FolderLock();
  FolderLock(const FolderLock &) = delete;

  /// Earlier owners that ended without release() and left files.
  const std::set<std::string> &earlierOwners() const { return ownersGone; }
  /// Unlocks the folder; the run has written everything.
  void release();
  /// Calls `commit` while no other process can take over the folder. Throws environmentError that names the new owner
  /// if it has been taken over.
  void whileOwned(const std::function<void()> &commit) const;

  static constexpr const char *fileName = "lock.json";

private:
  void beat();

  std::string folder, run;
  std::set<std::string> ownersGone;
  bool held = true;
  std::mutex mutex;
  std::condition_variable ends;
  bool ending = false;
  std::thread thread;
};

/// The run named in the folder's lock, as seen by this process; empty if there is none.
std::string lockedBy(const std::string &folder);

} // namespace cleave
