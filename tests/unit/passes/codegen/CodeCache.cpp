// The cache of compiled kernels: what is found, what is as none, and how large it becomes.
#include "passes/codegen/CodeCache.h"
#include "runtime/base/Sha256.h"
#include "tests/support/TestFolder.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace cleave;
using namespace cleave::passes;
namespace fs = std::filesystem;

namespace {

CodeCache::Key keyFor(int number) { return sha256({reinterpret_cast<const uint8_t *>(&number), sizeof number}); }

/// A key whose file lies in the same folder as those of all other numbers.
CodeCache::Key crowded(int number) {
  CodeCache::Key key = keyFor(number);
  key[0] = 5;
  return key;
}

std::vector<char> codeFor(int number, size_t bytes = 3000) {
  std::vector<char> code(bytes);
  for (size_t i = 0; i < bytes; ++i)
    code[i] = static_cast<char>(number * 31 + static_cast<int>(i) * 7);
  return code;
}

std::vector<fs::path> filesIn(const std::string &folder) {
  std::vector<fs::path> files;
  for (const auto &entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  return files;
}

void write(const fs::path &file, const std::string &bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

std::string contents(const fs::path &file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("code that was put is found, by its key") {
  const test::TestFolder folder;
  const CodeCache cache(folder.root + "/below/it");
  CHECK(!cache.find(keyFor(1)));
  cache.put(keyFor(1), codeFor(1));
  cache.put(keyFor(2), {});
  CHECK(cache.find(keyFor(1)) == codeFor(1));
  CHECK(CodeCache(folder.root + "/below/it").find(keyFor(2)) == std::vector<char>());
  CHECK(!cache.find(keyFor(3)));
  CHECK(filesIn(folder.root).size() == 2); // no temporary file is left
}

TEST_CASE("damaged files of the code cache are as none, and are replaced") {
  const test::TestFolder folder;
  const CodeCache cache(folder.root);
  cache.put(keyFor(1), codeFor(1));
  const fs::path file = filesIn(folder.root).at(0);
  const std::string whole = contents(file);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, whole.size() - 1}) {
    write(file, whole.substr(0, bytes));
    CHECK(!cache.find(keyFor(1)));
  }
  write(file, whole + "x");
  CHECK(!cache.find(keyFor(1)));
  for (const size_t at : {size_t{0}, size_t{31}, size_t{32}, whole.size() - 1}) {
    std::string changed = whole;
    changed[at] ^= 1;
    write(file, changed);
    CHECK(!cache.find(keyFor(1)));
  }
  cache.put(keyFor(1), codeFor(1));
  CHECK(cache.find(keyFor(1)) == codeFor(1));
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add); // others may have written it
  CHECK(!cache.find(keyFor(1)));
  fs::permissions(file, fs::perms::group_write, fs::perm_options::remove);
  CHECK(cache.find(keyFor(1)) == codeFor(1));

  cache.put(crowded(2), codeFor(2)); // a whole file under another name
  cache.put(crowded(3), codeFor(3));
  fs::path two, three;
  for (const fs::path &each : filesIn(folder.root))
    (contents(each).ends_with(std::string(codeFor(2).data(), 3000)) ? two : three) = each;
  fs::rename(two, file);
  CHECK(!cache.find(keyFor(1)));
  fs::remove(file);
  fs::create_symlink(three, file);
  CHECK(!cache.find(keyFor(1)));
  fs::remove(file);
  fs::create_directory(file);
  CHECK(!cache.find(keyFor(1)));
  cache.put(keyFor(1), codeFor(1)); // cannot, and says nothing
  CHECK(!cache.find(keyFor(1)));
}

TEST_CASE("a code cache that cannot be written finds nothing") {
  const test::TestFolder folder;
  write(folder.root + "/file", "x");
  for (const std::string &place :
       {folder.root + "/file", folder.root + "/file/below", std::string(), std::string("/proc/none")}) {
    const CodeCache cache(place);
    cache.put(keyFor(1), codeFor(1));
    CHECK(!cache.find(keyFor(1)));
  }
  CHECK(contents(folder.root + "/file") == "x");
}

TEST_CASE("a code cache on a full disk finds nothing and leaves nothing") {
  const test::TestFolder folder;
  const CodeCache cache(folder.root);
  cache.put(keyFor(1), codeFor(1));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t most : {rlim_t{0}, rlim_t{40}, rlim_t{1000}}) {
    const rlimit tight{most, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    cache.put(keyFor(2), codeFor(2));
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(!cache.find(keyFor(2)));
    CHECK(filesIn(folder.root).size() == 1);
  }
  std::signal(SIGXFSZ, handler);
  CHECK(cache.find(keyFor(1)) == codeFor(1));
}

TEST_CASE("a code cache keeps its bound, and what was used last") {
  const test::TestFolder folder;
  const CodeCache cache(folder.root, 64 * 32'768); // eight files of 4 KiB in a folder
  for (int i = 0; i < 8; ++i)
    cache.put(crowded(i), codeFor(i));
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 8; ++i)
    for (const fs::path &file : filesIn(folder.root))
      if (file.filename() == toHex(crowded(i)))
        fs::last_write_time(file, now - std::chrono::hours(100 - i));
  CHECK(cache.find(crowded(0)) == codeFor(0)); // is the newest now
  cache.put(crowded(8), codeFor(8));
  CHECK(filesIn(folder.root).size() == 7);
  for (const int kept : {0, 3, 4, 5, 6, 7, 8})
    CHECK(cache.find(crowded(kept)) == codeFor(kept));
  for (const int gone : {1, 2})
    CHECK(!cache.find(crowded(gone)));
  for (int i = 100; i < 500; ++i)
    cache.put(keyFor(i), codeFor(i, 100 + static_cast<size_t>(i) * 40));
  uint64_t sum = 0;
  for (const fs::path &file : filesIn(folder.root))
    sum += (fs::file_size(file) + 4095) / 4096 * 4096;
  CHECK(sum <= 64 * 32'768);
  cache.put(keyFor(9), codeFor(9, 40'000)); // more than a folder's share
  CHECK(!cache.find(keyFor(9)));
}

TEST_CASE("processes share a code cache") {
  const test::TestFolder folder;
  const CodeCache cache(folder.root, 64 * 32'768);
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process)
    if (const pid_t child = fork(); child != 0)
      children.push_back(child);
    else {
      int wrong = 0;
      for (int i = 0; i < 400; ++i) {
        const int number = i % 20; // more than the folder holds
        if (const auto found = cache.find(crowded(number)))
          wrong += *found != codeFor(number);
        else
          cache.put(crowded(number), codeFor(number));
      }
      _exit(wrong != 0);
    }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(filesIn(folder.root).size() <= 8);
  CHECK(!filesIn(folder.root).empty());
}
