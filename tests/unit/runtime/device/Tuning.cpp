// Records of measured choices: which are read.
#include "runtime/device/Tuning.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("a tuning record in the cache is used only if nobody else may have written it") {
  test::TemporaryFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const auto add = [](const std::string &where, const std::string &key) {
    Tuning record(where);
    record.put(key, "way 1");
    record.save();
  };
  const std::string file = folder.path("cleave/tuning.json");
  add("", "step a");
  CHECK_THAT(Tuning("").text(), Contains("step a"));
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  CHECK_THAT(Tuning("").text(), !Contains("step a"));
  CHECK_THAT(Tuning(file).text(), Contains("step a")); // asked for by name
  add("", "step b");                                   // in the cache it is replaced
  CHECK_THAT(Tuning("").text(), Contains("step b") && !Contains("step a"));
  fs::rename(file, folder.path("other"));
  fs::create_symlink(folder.path("other"), file);
  CHECK_THAT(Tuning("").text(), !Contains("step b"));
  unsetenv("XDG_CACHE_HOME");
}
