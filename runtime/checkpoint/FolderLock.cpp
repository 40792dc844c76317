// Ownership of checkpoint folders.
#include "runtime/checkpoint/FolderLock.h"
#include "runtime/base/AtomicFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/RandomBits.h"

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

constexpr const char *formatName = "cleave-lock";

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

  std::string text() const { return fmt::format("process {} on host {} (since {})", pid, host, since); }
};

std::string print(const Owner &owner) {
  const nlohmann::ordered_json json{
      {"format", formatName},     {"version", 1},     {"run", owner.run},     {"host", owner.host},
      {"machine", owner.machine}, {"pid", owner.pid}, {"start", owner.start}, {"since", owner.since},
      {"ended", owner.ended}};
  return jsonText(json, 1) + "\n";
}

bool isRunName(const std::string &name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// nullopt if there is no lock.
std::optional<Owner> readOwner(const std::string &folder) {
  const std::string file = folder + "/" + FolderLock::fileName;
  struct stat info {};
  if (lstat(file.c_str(), &info) != 0)
    return std::nullopt;
  const auto json = parseJson(readTextFile(file, Status::Environment, 1 << 16), file);
  try {
    if (json.at("format") != formatName || json.at("version") != 1 || !isRunName(json.at("run").get<std::string>()))
      throw environmentError(fmt::format("{}: is not a Cleave lock of version 1", file));
    return Owner{json.at("run"), json.at("host"),  json.at("machine"), json.at("since"),
                 json.at("pid"), json.at("start"), json.at("ended")};
  } catch (const nlohmann::json::exception &) {
    throw environmentError(fmt::format("{}: is not a Cleave lock of version 1", file));
  }
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
class Alone {
public:
  explicit Alone(const std::string &folder) : fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto until = Clock::now() + std::chrono::seconds(2);
    while (fd >= 0 && !(locked = flock(fd, LOCK_EX | LOCK_NB) == 0)) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() > until)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~Alone() {
    if (fd >= 0)
      close(fd);
  }
  Alone(const Alone &) = delete;
  bool isAlone() const { return locked; }

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

/// Whether `run` wrote a file of this name (see Save.cpp), complete or not.
bool isOf(const std::string &run, const std::string &name) {
  const bool ours = name.starts_with("step-") || name.starts_with(".step-") || name.starts_with(".manifest.json") ||
                    name.starts_with("." + std::string(FolderLock::fileName));
  return ours && name.find("-" + run) != std::string::npos;
}

/// Removes the folder's files whose names `which` selects.
void removeFiles(const std::string &folder, const std::function<bool(const std::string &)> &which) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (which(it->path().filename().string()))
      found.push_back(it->path());
  for (const fs::path &path : found)
    fs::remove(path, error);
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

std::string newRunName() { return fmt::format("{:016x}", randomBits()); }

std::string lockedBy(const std::string &folder) {
  try {
    const auto owner = readOwner(folder);
    return owner ? owner->run : "";
  } catch (const Error &) { // the lock is being replaced
    return "";
  }
}

FolderLock::FolderLock(std::string name, std::string runName, const std::function<bool(const std::string &)> &keep)
    : folder(std::move(name)), run(std::move(runName)) {
  // Checking an owner on another host takes time; done before taking the lock, so that no one else waits.
  if (const auto owner = readOwner(folder); owner && lifeOf(*owner) == Life::Unknown && beats(folder, owner->run))
    refuse(folder, *owner);
  const std::string watched = lockedBy(folder);
  const auto mine = stateOf(getpid());
  const auto file = prepared(folder, {run, hostName(), machineOf(), now(), getpid(), mine ? mine->start : 0});
  std::optional<Owner> before;
  {
    const Alone alone(folder);
    before = readOwner(folder);
    const Life life = before ? lifeOf(*before) : Life::Gone;
    if (life == Life::Runs || (life == Life::Unknown && before->run != watched))
      refuse(folder, *before);
    if (!alone.isAlone()) // a process stopped before its rename must not rename now
      removeFiles(folder, [&](const std::string &file) {
        return file.starts_with(fmt::format(".{}-", fileName)) && file.find("-" + run) == std::string::npos;
      });
    file->commit();
  }
  syncFolder(folder);
  if (before) // including temporary files that a stopped process would rename after it resumes
    removeFiles(folder, [&](const std::string &file) { return isOf(before->run, file) && !keep(file); });
  {
    std::lock_guard lock(activeMutex);
    active().insert(run);
  }
  thread = std::thread([this] { beat(); });
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
  const Alone alone(folder);
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
