// Searches for NVIDIA's libraries.
#include "runtime/cuda/driver/Library.h"

#include "runtime/base/Error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <set>

namespace cleave::cuda {

namespace {

namespace fs = std::filesystem;

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// PREFIX/lib/python3.*/site-packages/nvidia/*/lib
void addWheels(const fs::path &prefix, std::vector<fs::path> &folders) {
  std::error_code ignored;
  for (const auto &python : fs::directory_iterator(prefix / "lib", ignored)) {
    if (!python.path().filename().string().starts_with("python3"))
      continue;
    std::set<fs::path> found; // sorted, so that the choice is deterministic
    for (const auto &package : fs::directory_iterator(python.path() / "site-packages" / "nvidia", ignored))
      if (fs::is_directory(package.path() / "lib", ignored))
        found.insert(package.path() / "lib");
    folders.insert(folders.end(), found.begin(), found.end());
  }
}

std::vector<fs::path> searched() {
  std::vector<fs::path> folders;
  for (const std::string &home : {environment("CUDA_HOME"), std::string("/usr/local/cuda")})
    if (!home.empty())
      for (const char *part : {"lib64", "lib"})
        folders.push_back(fs::path(home) / part);
  for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = environment(variable); !prefix.empty())
      addWheels(prefix, folders);
  // The environment of the python3 in PATH: PREFIX/bin/python3.
  const std::string path = environment("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const fs::path folder = path.substr(begin, end - begin);
    std::error_code ignored;
    if (!folder.empty() && fs::exists(folder / "python3", ignored)) {
      addWheels(folder.parent_path(), folders);
      break;
    }
    begin = end + 1;
  }
  return folders;
}

} // namespace

Library Library::open(const std::vector<std::string> &names) {
  Library library;
  const auto attempt = [&](const std::string &file) {
    library.handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    library.name = file;
    if (const char *error = library.handle ? nullptr : ::dlerror(); error && library.why.empty())
      library.why = error;
    return library.handle != nullptr;
  };
  const std::string given = environment("CLEAVE_CUDA_LIBRARIES");
  for (const std::string &name : names)
    if (attempt(given.empty() ? name : given + "/" + name))
      return library;
  if (!given.empty()) // only the folder that the user chose
    return library;
  for (const fs::path &folder : searched())
    for (const std::string &name : names) {
      std::error_code ignored;
      if (fs::exists(folder / name, ignored) && attempt((folder / name).string()))
        return library;
    }
  return library;
}

void *Library::symbol(const char *wanted) const { return handle ? ::dlsym(handle, wanted) : nullptr; }

void *Library::required(const char *wanted) const {
  if (void *found = symbol(wanted))
    return found;
  throw environmentError(fmt::format("cuda: {} has no {}: it is too old", name, wanted));
}

} // namespace cleave::cuda
