// Ownership of checkpoint folders.
#include "runtime/checkpoint/FolderLock.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Thread.h"
#include "runtime/checkpoint/Leftovers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace cleave {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

constexpr const char *lockFormat = "cleave-lock";

/// A process's state from /proc/PID/stat.
struct ProcessState {
  char state;
  uint64_t start; ///< clock ticks after boot
};

std::optional<ProcessState> stateOf(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name = text.rfind(')'); // the name may contain any characters
  if (name == std::string::npos)
    return std::nullopt;
  std::istringstream rest(text.substr(name + 1));
  ProcessState found{};
  std::string word;
  rest >> found.state;
  for (int field = 4; field < 22; ++field)
    rest >> word;
  rest >> found.start;
  return rest ? std::optional(found) : std::nullopt;
}

std::string firstLine(const char *file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Identifies the host and process namespace in which process numbers are unique.
std::string machineOf() {
  std::error_code error;
  return firstLine("/proc/sys/kernel/random/boot_id") + " " + fs::read_symlink("/proc/self/ns/pid", error).string();
}

std::string hostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

struct Owner {
  std::string run, host, machine, since;
  int64_t pid = 0;
  uint64_t start = 0;
  bool ended = false;
  std::vector<std::string> after; ///< earlier owners with files in the folder

  std::string text() const { return fmt::format("process {} on host {} (since {})", pid, host, since); }
};

std::string print(const Owner &owner) {
  const nlohmann::ordered_json json{
      {"format", lockFormat},     {"version", 1},        {"run", owner.run},     {"host", owner.host},
      {"machine", owner.machine}, {"pid", owner.pid},    {"start", owner.start}, {"since", owner.since},
      {"ended", owner.ended},     {"after", owner.after}};
  return jsonText(json, 1) + "\n";
}

Owner parseOwner(const std::string &file) {
  const auto wrong = [&] { return environmentError(fmt::format("{}: is not a Cleave lock of version 1", file)); };
  const auto json = parseJson(readTextFile(file, Status::Environment, 1 << 20), file);
  try {
    if (json.at("format") != lockFormat || json.at("version") != 1)
      throw wrong();
    const Owner owner{
        json.at("run"), json.at("host"),  json.at("machine"), json.at("since"),
        json.at("pid"), json.at("start"), json.at("ended"),   json.value("after", std::vector<std::string>())};
    if (!isRunName(owner.run) || !std::all_of(owner.after.begin(), owner.after.end(), isRunName))
      throw wrong();
    return owner;
  } catch (const nlohmann::json::exception &) {
    throw wrong();
  }
}

/// nullopt if there is no lock.
std::optional<Owner> readOwner(const std::string &folder) {
  const std::string file = folder + "/" + FolderLock::fileName;
  struct stat info {};
  if (lstat(file.c_str(), &info) != 0)
    return std::nullopt;
  return parseOwner(file);
}

/// The former owners of a lock that have files in the folder.
std::vector<std::string> ownersBefore(const std::string &folder, const std::optional<Owner> &last) {
  if (!last)
    return {};
  std::vector<std::string> found = last->after;
  found.push_back(last->run);
  const std::set<std::string> present = runsIn(folder);
  std::erase_if(found, [&](const std::string &run) { return !present.contains(run); });
  return found;
}

/// Writes a lock file that only needs to be renamed.
std::unique_ptr<AtomicFile> prepared(const std::string &folder, const Owner &owner) {
  auto file = std::make_unique<AtomicFile>(folder + "/" + FolderLock::fileName, owner.run);
  const std::string text = print(owner);
  file->write(text.data(), text.size());
  file->finish();
  return file;
}

/// Holds an exclusive lock (flock) on the folder during a check and a rename. Some file systems do not support flock,
/// and a process stopped while it holds the lock would hold it forever: after a timeout this continues without the
/// lock.
class FolderFlock {
public:
  explicit FolderFlock(const std::string &folder) : fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto until = Clock::now() + std::chrono::seconds(2);
    while (fd >= 0 && !(locked = flock(fd, LOCK_EX | LOCK_NB) == 0)) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() > until)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~FolderFlock() {
    if (fd >= 0)
      close(fd);
  }
  FolderFlock(const FolderFlock &) = delete;
  bool holds() const { return locked; }

private:
  int fd;
  bool locked = false;
};

/// Active runs of this process.
std::mutex activeMutex;
std::set<std::string> &active() {
  static std::set<std::string> runs;
  return runs;
}
bool isActive(const std::string &run) {
  std::lock_guard lock(activeMutex);
  return active().contains(run);
}

enum class Life { Runs, Stopped, Gone, Unknown };

Life lifeOf(const Owner &owner) {
  if (owner.ended)
    return Life::Gone;
  if (owner.machine != machineOf() || owner.host != hostName())
    return Life::Unknown;
  if (owner.pid == getpid())
    return isActive(owner.run) ? Life::Runs : Life::Gone;
  const auto state = stateOf(owner.pid);
  if (!state || state->start != owner.start || state->state == 'Z' || state->state == 'X')
    return Life::Gone;
  return state->state == 'T' || state->state == 't' ? Life::Stopped : Life::Runs;
}

/// Whether the lock of a run on another host is being refreshed; observes it until it would be stale.
bool beats(const std::string &folder, const std::string &run) {
  const std::string file = folder + "/" + FolderLock::fileName;
  const auto touched = [&]() -> std::optional<std::pair<int64_t, int64_t>> {
    struct stat info {};
    if (stat(file.c_str(), &info) != 0)
      return std::nullopt;
    return std::pair(int64_t(info.st_mtim.tv_sec), int64_t(info.st_mtim.tv_nsec));
  };
  const auto before = touched();
  const auto until = Clock::now() + std::chrono::duration<double>(FolderLock::staleSeconds);
  while (Clock::now() < until) {
    if (lockedBy(folder) != run)
      return false;
    if (touched() != before)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  return false;
}

[[noreturn]] void refuse(const std::string &folder, const Owner &owner) {
  throw userError(fmt::format("checkpoint {}: {} is training with this folder; end it or choose another --checkpoint",
                              folder, owner.text()));
}

/// Seconds since the Epoch at which a file was modified, by the file system's clock; 0 if that is unknown.
double modified(const std::string &file) {
  struct stat info {};
  return lstat(file.c_str(), &info) == 0 ? double(info.st_mtim.tv_sec) + double(info.st_mtim.tv_nsec) * 1e-9 : 0;
}

/// Whether nobody will rename this lock any more: it names a run that has ended, or its writer, on another host or
/// stopped before it wrote a word, has had time enough.
bool isAbandoned(const std::string &file, double now) {
  const bool old = now - modified(file) > FolderLock::staleSeconds;
  try {
    const Life life = lifeOf(parseOwner(file));
    return life == Life::Gone || (life == Life::Unknown && old);
  } catch (const Error &) {
    std::error_code error;
    return old && fs::file_size(file, error) == 0 && !error;
  }
}

/// Removes locks that were never renamed: all but the one of `run`, or only abandoned ones.
void removeUnfinishedLocks(const std::string &folder, const std::string &run, bool all) {
  const double now = modified(folder + "/" + FolderLock::fileName);
  for (const std::string &name : filesIn(folder))
    if (isUnfinishedLock(name) && runOfFile(name) != run && (all || isAbandoned(folder + "/" + name, now)))
      unlink((folder + "/" + name).c_str());
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

} // namespace

std::string lockedBy(const std::string &folder) {
  try {
    const auto owner = readOwner(folder);
    return owner ? owner->run : "";
  } catch (const Error &) { // the lock is being replaced
    return "";
  }
}

FolderLock::FolderLock(std::string name, std::string runName) : folder(std::move(name)), run(std::move(runName)) {
  // Checking an owner on another host takes time; done before taking the lock, so that no one else waits.
  if (const auto owner = readOwner(folder); owner && lifeOf(*owner) == Life::Unknown && beats(folder, owner->run))
    refuse(folder, *owner);
  const auto seen = readOwner(folder);
  const auto mine = stateOf(getpid());
  Owner owner{run, hostName(), machineOf(), now(), getpid(), mine ? mine->start : 0, false, ownersBefore(folder, seen)};
  auto file = prepared(folder, owner);
  {
    const FolderFlock locked(folder);
    const auto before = readOwner(folder);
    const bool same = (before ? before->run : "") == (seen ? seen->run : "");
    const Life life = before ? lifeOf(*before) : Life::Gone;
    if (life == Life::Runs || (life == Life::Unknown && !same))
      refuse(folder, *before);
    if (!locked.holds()) // a process stopped before its rename must not rename now
      removeUnfinishedLocks(folder, run, true);
    if (!same) {
      owner.after = ownersBefore(folder, before);
      file = prepared(folder, owner);
    }
    file->commit();
  }
  syncFolder(folder);
  removeUnfinishedLocks(folder, run, false);
  ownersGone.insert(owner.after.begin(), owner.after.end());
  {
    std::lock_guard lock(activeMutex);
    active().insert(run);
  }
  thread = startThread("the checkpoint's lock", [this] { beat(); });
}

void FolderLock::beat() {
  std::unique_lock lock(mutex);
  while (!ends.wait_for(lock, std::chrono::duration<double>(beatSeconds), [this] { return ending; }))
    if (lockedBy(folder) == run)
      utimensat(AT_FDCWD, (folder + "/" + fileName).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

FolderLock::~FolderLock() {
  {
    std::lock_guard lock(mutex);
    ending = true;
  }
  ends.notify_all();
  if (thread.joinable())
    thread.join();
  try {
    if (held) {
      const auto owner = readOwner(folder);
      if (owner && owner->run == run) {
        Owner ended = *owner;
        ended.ended = true;
        const auto file = prepared(folder, ended);
        whileOwned([&] { file->commit(); });
      }
    }
  } catch (const std::exception &) { // the lock becomes stale at the end of this process
  }
  std::lock_guard lock(activeMutex);
  active().erase(run);
}

void FolderLock::release() {
  whileOwned([&] { unlink((folder + "/" + fileName).c_str()); });
  held = false;
}

void FolderLock::whileOwned(const std::function<void()> &commit) const {
  const FolderFlock locked(folder);
  const auto owner = readOwner(folder);
  if (!owner)
    throw environmentError(fmt::format("checkpoint {}: {} is gone: another run took over the folder and has ended, or "
                                       "it was removed; nothing was written afterwards",
                                       folder, fileName));
  if (owner->run != run)
    throw environmentError(fmt::format("checkpoint {}: {} took over the folder while this process was stopped or its "
                                       "host did not respond; nothing was written afterwards",
                                       folder, owner->text()));
  commit();
}

} // namespace cleave
