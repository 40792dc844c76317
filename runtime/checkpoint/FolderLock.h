// One training at a time writes checkpoints to a folder: "lock.json" there says which.
//
// What holds: the owner is a run, named by 16 random hexadecimal digits that all of its files carry. A lock is stale when
// its run has ended, its process is gone, its process is stopped (the other ranks have given it up), or, on another
// host, when it has not been touched for `staleSeconds`. Who takes a stale lock over becomes the owner and removes what
// the owner before was about to rename, so a process that wakes later finds that it owns the folder no more, or that its
// rename fails, and changes nothing. Between looking and renaming nobody else can take over, where the file system locks
// folders (flock).
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace cleave {

class FolderLock {
public:
  /// An owner of another host touches its lock every `beatSeconds`.
  static constexpr double beatSeconds = 5, staleSeconds = 30;

  /// Takes the folder for `run`. Throws userError naming host and process of who has it. Files of a run that ended
  /// without releasing it, and that are `left` over, are removed: what carries its name and `keep` does not want.
  FolderLock(std::string folder, std::string run, const std::function<bool(const std::string &name)> &keep);
  /// Says that the run has ended; its leftovers are removed by the next.
  ~FolderLock();
  FolderLock(const FolderLock &) = delete;

  /// Gives the folder free: the run wrote all that it wanted to.
  void release();
  /// Calls `commit` while nobody can take the folder over. Throws environmentError naming the new owner where that has
  /// happened before.
  void whileOwned(const std::function<void()> &commit) const;

  static constexpr const char *fileName = "lock.json";

private:
  void beat();

  std::string folder, run;
  bool held = true;
  std::mutex mutex;
  std::condition_variable ends;
  bool ending = false;
  std::thread thread;
};

/// The run that the folder's lock names, as this process sees it; empty where there is none.
std::string lockedBy(const std::string &folder);

/// 16 random hexadecimal digits.
std::string newRunName();

} // namespace cleave
