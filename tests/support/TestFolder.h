// A temporary folder of a test.
#pragma once
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace cleave::test {

/// A folder that exists as long as this object.
struct TestFolder {
  std::string root = (std::filesystem::temp_directory_path() / "cleave-test-XXXXXX").string();
  TestFolder() { REQUIRE(mkdtemp(root.data())); }
  TestFolder(const TestFolder &) = delete;
  ~TestFolder() { std::filesystem::remove_all(root); }
  std::string path(const std::string &name) const { return root + "/" + name; }
};

} // namespace cleave::test
