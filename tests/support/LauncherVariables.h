// The environment variables of launchers, for tests of what is read from them.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>

namespace cleave::test {

/// Sets the launchers' variables to exactly these; the destructor restores what they were.
class LauncherVariables {
public:
  using Values = std::map<std::string, std::string>;
  explicit LauncherVariables(const Values &values) : before(replaceBy(values)) {}
  ~LauncherVariables() { replaceBy(before); }
  LauncherVariables(const LauncherVariables &) = delete;

private:
  static Values replaceBy(const Values &values) {
    Values found;
    for (char **each = environ; *each; ++each) {
      const std::string text = *each, name = text.substr(0, text.find('='));
      for (const char *prefix : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_", "TORCHELASTIC_",
                                 "OMPI_COMM_", "PMI_", "PMIX_", "SLURM_"})
        if (name.starts_with(prefix))
          found[name] = text.substr(std::min(text.size(), name.size() + 1));
    }
    for (const auto &[name, value] : found)
      ::unsetenv(name.c_str());
    for (const auto &[name, value] : values)
      ::setenv(name.c_str(), value.c_str(), 1);
    return found;
  }
  const Values before;
};

} // namespace cleave::test
