// Names and leftovers of a checkpoint folder.
#include "runtime/checkpoint/Leftovers.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/RandomBits.h"
#include "runtime/checkpoint/FolderLock.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <unistd.h>

namespace cleave {
namespace fs = std::filesystem;

namespace {

bool isHex(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Reads a name from its beginning.
struct NameReader {
  std::string_view rest;

  bool word(std::string_view expected) {
    if (!rest.starts_with(expected))
      return false;
    rest.remove_prefix(expected.size());
    return true;
  }
  bool digits(size_t least) {
    const size_t count = std::min(rest.size(), rest.find_first_not_of("0123456789"));
    rest.remove_prefix(count);
    return count >= least;
  }
  std::string run() {
    const std::string_view found = rest.substr(0, 16);
    if (!isHex(found))
      return "";
    rest.remove_prefix(found.size());
    return std::string(found);
  }
};

/// The run of a checkpoint's file, whose name is read to its end.
std::string runOfStep(NameReader &name) {
  if (!name.word("step-") || !name.digits(8) || !name.word("-"))
    return "";
  std::string run = name.run();
  if (run.empty() || !name.word("-") || !name.digits(1))
    return "";
  const bool piece = name.word(".rank-") && name.digits(4) && name.word(".safetensors");
  return piece || name.word(".manifest.json") ? run : "";
}

/// The run of a file that has not been renamed (AtomicFile.h): "NAME-RUN.tmp-" and 16 hexadecimal digits.
std::string runOfUnfinished(NameReader name) {
  if (!name.word("manifest.json") && !name.word(FolderLock::fileName) && runOfStep(name).empty())
    return "";
  if (!name.word("-"))
    return "";
  std::string run = name.run();
  return !run.empty() && name.word(".tmp-") && isHex(name.rest) ? run : "";
}

} // namespace

std::string newRunName() { return fmt::format("{:016x}", randomBits()); }
bool isRunName(const std::string &name) { return isHex(name); }

std::string pieceFileName(int64_t step, const std::string &run, int64_t generation, unsigned rank) {
  return fmt::format("step-{:08}-{}-{}.rank-{:04}.safetensors", step, run, generation, rank);
}

std::string manifestFileName(int64_t step, const std::string &run, int64_t generation) {
  return fmt::format("step-{:08}-{}-{}.manifest.json", step, run, generation);
}

std::string runOfFile(const std::string &name) {
  NameReader reader{name};
  if (reader.word("."))
    return runOfUnfinished(reader);
  std::string run = runOfStep(reader);
  return reader.rest.empty() ? run : "";
}

bool isUnfinishedLock(const std::string &name) {
  return name.starts_with(fmt::format(".{}-", FolderLock::fileName)) && !runOfFile(name).empty();
}

std::vector<std::string> filesIn(const std::string &folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

std::set<std::string> runsIn(const std::string &folder) {
  std::set<std::string> runs;
  for (const std::string &name : filesIn(folder))
    if (std::string run = runOfFile(name); !run.empty())
      runs.insert(std::move(run));
  return runs;
}

std::vector<std::string> checkpointPaths(const std::string &folder) {
  if (folder.empty())
    return {};
  std::vector<std::string> paths{folder + "/manifest.json", folder + "/" + FolderLock::fileName};
  for (const std::string &name : filesIn(folder))
    if (!runOfFile(name).empty())
      paths.push_back(folder + "/" + name);
  return paths;
}

/// What the names of one checkpoint's files have in common: "step-STEP-RUN-GENERATION."
static std::string stemOf(const std::string &name) { return name.substr(0, name.find('.') + 1); }

bool NeededFiles::contains(const std::string &name) const {
  return !known || names.contains(name) || stems.contains(stemOf(name));
}

NeededFiles neededFiles(const std::string &folder) {
  NeededFiles needed;
  const auto add = [&](const Manifest &manifest) {
    for (const ManifestFile &file : manifest.files)
      needed.names.insert(file.name);
  };
  try {
    if (!hasCheckpoint(folder)) {
      for (const std::string &name : filesIn(folder))
        if (name.ends_with(".manifest.json") && !runOfFile(name).empty())
          needed.stems.insert(stemOf(name));
      return needed;
    }
    const Manifest last = readManifest(folder);
    needed.stems.insert(stemOf(last.ownFile()));
    for (const KeptCheckpoint &kept : last.earlier)
      needed.stems.insert(stemOf(kept.manifest));
    add(last);
    for (const KeptCheckpoint &kept : last.earlier) {
      const std::string path = folder + "/" + kept.manifest;
      try {
        add(parseManifest(readTextFile(path), path));
      } catch (const Error &) { // its files have its stem
      }
    }
  } catch (const Error &) {
    needed.known = false;
  }
  return needed;
}

std::set<std::string> runsOf(const Manifest &manifest) {
  std::set<std::string> runs(manifest.runs.begin(), manifest.runs.end());
  const auto add = [&](const std::string &run) {
    if (isRunName(run))
      runs.insert(run);
  };
  add(manifest.run);
  for (const ManifestFile &file : manifest.files)
    add(runOfFile(file.name));
  for (const KeptCheckpoint &kept : manifest.earlier)
    add(runOfFile(kept.manifest));
  return runs;
}

/// The names of files that may be removed: those without their final name, or those with it.
static std::vector<std::string> leftovers(const std::string &folder, const std::set<std::string> &runs, bool named) {
  const NeededFiles needed = neededFiles(folder);
  std::vector<std::string> found = filesIn(folder);
  std::erase_if(found, [&](const std::string &name) {
    return name.starts_with(".") == named || !runs.contains(runOfFile(name)) || needed.contains(name);
  });
  return found;
}

std::string removeLeftovers(const std::string &folder, const std::set<std::string> &runs) {
  size_t left = 0;
  std::string first;
  const auto remove = [&](const std::vector<std::string> &names) {
    for (const std::string &name : names)
      if (unlink((folder + "/" + name).c_str()) != 0 && errno != ENOENT && left++ == 0)
        first = fmt::format("{}: {}", name, std::strerror(errno));
  };
  // A manifest that can no longer be renamed needs nothing; so what is needed is read again.
  remove(leftovers(folder, runs, false));
  if (left == 0)
    remove(leftovers(folder, runs, true));
  if (left == 0)
    return "";
  return fmt::format("checkpoint {}: {} superseded file{} could not be removed, the first is {}; later checkpoints try "
                     "again",
                     folder, left, left == 1 ? "" : "s", first);
}

} // namespace cleave
