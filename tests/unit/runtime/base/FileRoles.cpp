// No file of a run has two roles if it is written.
#include "runtime/base/FileRoles.h"
#include "runtime/base/Error.h"
#include "tests/support/TestFolder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("an output that is another file of the run is refused", "[base]") {
  const test::TestFolder folder;
  std::ofstream(folder.path("plan")) << "plan";
  std::ofstream(folder.path("other")) << "other";
  fs::create_directory(folder.path("sub"));
  fs::create_symlink("../plan", folder.path("sub/link"));
  fs::create_hard_link(folder.path("plan"), folder.path("second"));
  fs::create_symlink("new", folder.path("early"));
  fs::create_symlink(".", folder.path("here"));
  fs::create_symlink("loop", folder.path("loop"));
  const auto check = [&](const std::string &in, const std::string &out, const std::string &more = "") {
    FileRoles files;
    files.writes("--trace", more.empty() ? "" : folder.path(more)); // the order does not matter
    files.writes("--metrics", out.empty() ? "" : folder.path(out));
    files.reads("--plan", in.empty() ? "" : folder.path(in));
    files.reads("the data file", {folder.path("other"), folder.path("missing")});
    files.check();
  };
  for (const char *name : {"plan", "sub/link", "second", "sub/../plan", "here/plan", "./plan"})
    CHECK_THROWS_WITH(check("plan", name), Contains(folder.path(name)) && Contains("--metrics") && Contains("--plan"));
  CHECK_THROWS_WITH(check("sub/link", "plan"), Contains("is the same file as"));
  CHECK_THROWS_WITH(check("plan", "new", "other"), Contains("--trace") && Contains("the data file"));
  CHECK_THROWS_WITH(check("", "missing"), Contains("the data file"));
  for (const auto &[one, two] :
       {std::pair("new", "new"), {"new", "here/new"}, {"early", "new"}, {"new", "sub/../early"}})
    CHECK_THROWS_WITH(check("plan", one, two), Contains("--metrics") && Contains("--trace"));
  for (const auto &[one, two] : {std::pair("new", "newer"),
                                 {"new", "sub/new"},
                                 {"", ""},
                                 {"sub", "sub"},
                                 {"loop", "loop"},
                                 {"nowhere/x", "nowhere/x"}})
    CHECK_NOTHROW(check("plan", one, two)); // folders and wrong paths have errors of their own
  CHECK_NOTHROW(check("other", "new"));     // two inputs may be one file
}
