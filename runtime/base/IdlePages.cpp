#include "runtime/base/IdlePages.h"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <malloc.h>
#include <string>
#include <string_view>
#include <sys/mman.h>

namespace cleave {

namespace {

/// Private memory that maps a file and is not writable; empty for other memory. Read from the first line of an entry:
/// "BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH".
struct Mapping {
  uintptr_t begin = 0, end = 0;

  explicit Mapping(std::string_view line) {
    const char *last = line.data() + line.size();
    const auto [dash, failed] = std::from_chars(line.data(), last, begin, 16);
    if (failed != std::errc() || dash == last || *dash != '-')
      return;
    const auto [space, wrong] = std::from_chars(dash + 1, last, end, 16);
    const std::string_view rest(space, static_cast<size_t>(last - space));
    const bool readOnly = rest.starts_with(" r-xp ") || rest.starts_with(" r--p ");
    if (wrong != std::errc() || !readOnly || rest.find('/') == rest.npos)
      begin = end = 0;
  }
};

} // namespace

void releaseIdlePages() {
  malloc_trim(0);
  std::ifstream smaps("/proc/self/smaps");
  Mapping mapping("");
  for (std::string line; std::getline(smaps, line);) {
    const size_t word = line.find(' ');
    if (word != line.npos && word > 0 && line[word - 1] != ':')
      mapping = Mapping(line);
    else if (line.starts_with("Anonymous:") && line.ends_with(" 0 kB") && mapping.end > mapping.begin)
      ::madvise(reinterpret_cast<void *>(mapping.begin), mapping.end - mapping.begin, MADV_DONTNEED); // only a hint
  }
}

} // namespace cleave
