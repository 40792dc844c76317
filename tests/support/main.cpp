// Catch2's main for every test program. A program has its own cache, which is removed at its end.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

namespace {

struct OwnCache {
  std::string folder = std::filesystem::temp_directory_path() / ("cleave-test-cache-" + std::to_string(getpid()));
  OwnCache() { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  ~OwnCache() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
} const ownCache;

} // namespace
