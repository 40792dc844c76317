// Reads the size of the memory and the limits of control groups (Linux, Documentation/admin-guide/cgroup-v2.rst).
#include "runtime/base/MachineMemory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

namespace cleave {

/// The limit in a file; nothing to limit if there is no file, or no number in it ("max").
static double limitIn(const std::string &file, double most) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word))
    return most;
  char *end = nullptr;
  const double bytes = std::strtod(word.c_str(), &end);
  return *end == 0 && bytes > 0 ? std::min(bytes, most) : most;
}

double machineMemory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) { // "0::/a/b", or of version 1 "9:memory:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const bool unified = kinds.empty();
    if (!unified && kinds.find("memory") == std::string::npos)
      continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory",
                      file = unified ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) { // and all above
      if (group.ends_with('/'))
        group.pop_back();
      bytes = limitIn(root + group + file, bytes);
      if (group.empty())
        break;
    }
  }
  return bytes;
}

} // namespace cleave
