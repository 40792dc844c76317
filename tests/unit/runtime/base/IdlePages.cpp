// Pages of files are given back, and pages that differ from their file are kept.
#include "runtime/base/IdlePages.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace cleave;

namespace {

/// Resident pages of mapped files.
size_t residentFilePages() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return shared;
}

} // namespace

TEST_CASE("idle pages of files are given back, changed ones are kept", "[base]") {
  constexpr size_t size = size_t{8} << 20;
  std::FILE *file = std::tmpfile();
  REQUIRE(file);
  const std::string text(size, 'a');
  REQUIRE(std::fwrite(text.data(), 1, size, file) == size);
  REQUIRE(std::fflush(file) == 0);
  const auto map = [&](int access) {
    void *memory = ::mmap(nullptr, size, access, MAP_PRIVATE, ::fileno(file), 0);
    REQUIRE(memory != MAP_FAILED);
    return static_cast<char *>(memory);
  };
  char *read = map(PROT_READ), *changed = map(PROT_READ | PROT_WRITE);
  changed[size / 2] = 'b';
  REQUIRE(::mprotect(changed, size, PROT_READ) == 0); // as the loader does after relocations
  CHECK(std::count(read, read + size, 'a') == size);
  const size_t before = residentFilePages();
  releaseIdlePages();
  CHECK(residentFilePages() * static_cast<size_t>(::getpagesize()) <=
        before * static_cast<size_t>(::getpagesize()) - size / 2);
  CHECK(std::count(read, read + size, 'a') == size);
  CHECK(changed[size / 2] == 'b');
  ::munmap(read, size);
  ::munmap(changed, size);
  std::fclose(file);
}
