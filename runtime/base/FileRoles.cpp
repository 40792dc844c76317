// Finds files with two roles.
#include "runtime/base/FileRoles.h"
#include "runtime/base/Error.h"

#include <cerrno>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <sys/stat.h>
#include <tuple>

namespace cleave {
namespace fs = std::filesystem;

namespace {

/// Device and inode of a regular file; of a file that does not exist, those of its folder, and its name.
using Identity = std::tuple<dev_t, ino_t, std::string>;

std::optional<Identity> identityOf(fs::path path) {
  std::error_code error;
  for (int links = 0; links < 40; ++links) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0)
      return S_ISREG(found.st_mode) ? std::optional(Identity(found.st_dev, found.st_ino, "")) : std::nullopt;
    if (errno != ENOENT)
      return std::nullopt;                                               // whoever opens the file reports the error
    if (const fs::path target = fs::read_symlink(path, error); !error) { // a link to a file that does not exist
      path = path.parent_path() / target;
      continue;
    }
    const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
    if (!path.has_filename() || ::stat(parent.c_str(), &found) != 0)
      return std::nullopt;
    return Identity(found.st_dev, found.st_ino, path.filename().string());
  }
  return std::nullopt;
}

} // namespace

void FileRoles::reads(const std::string &what, const std::vector<std::string> &paths) {
  for (const std::string &path : paths)
    reads(what, path);
}

void FileRoles::check() const {
  std::map<Identity, const File *> known;
  for (const bool written : {false, true})
    for (const File &file : files) {
      if (file.written != written || file.path.empty())
        continue;
      const auto identity = identityOf(file.path);
      if (!identity)
        continue;
      const auto [other, isNew] = known.emplace(*identity, &file);
      if (!isNew && written)
        throw userError(fmt::format("{} {}: is the same file as {} {}; an output must be a file of its own", file.what,
                                    file.path, other->second->what, other->second->path));
    }
}

} // namespace cleave
