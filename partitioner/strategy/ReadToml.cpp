// Reads strings, counts, patterns and rules of strategy files.
#include "partitioner/strategy/ReadToml.h"

#include "runtime/base/Error.h"
#include "runtime/base/Parts.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::partitioner {

std::string stringAt(const std::string &file, const std::string &key, const toml::node &node) {
  if (auto text = node.value<std::string>())
    return *text;
  throw userError(fmt::format("{}: {} must be a string", at(file, node), key));
}

int64_t countAt(const std::string &file, const std::string &key, const toml::node &node, int64_t most) {
  const std::optional<int64_t> count = node.value_exact<int64_t>();
  if (!count || *count < 1 || *count > most)
    throw userError(fmt::format("{}: {} must be a whole number from 1 to {}", at(file, node), key, most));
  return *count;
}

std::string patternAt(const std::string &file, const std::string &pattern, const toml::node &node) {
  const std::vector<std::string> parts = partsOf(pattern, '.');
  if (std::find(parts.begin(), parts.end(), "") != parts.end() || pattern.find("**") != std::string::npos)
    throw userError(
        fmt::format("{}: \"{}\" is not a pattern of module paths like \"blocks.*.fc\"; * stands for any characters "
                    "but dots",
                    at(file, node), pattern));
  return pattern;
}

std::vector<TomlEntry> rulesAt(const std::string &file, const char *key, const toml::node &node) {
  if (const toml::table *table = node.as_table())
    return inFileOrder(*table);
  throw userError(fmt::format("{}: {} must be a table keyed by module path", at(file, node), key));
}

} // namespace cleave::partitioner
