// What the entries of strategy files have in common. Errors begin with the file and the line.
#pragma once
#include "partitioner/toml/Toml.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::partitioner {

std::string stringAt(const std::string &file, const std::string &key, const toml::node &node);
/// From 1 to `most`.
int64_t countAt(const std::string &file, const std::string &key, const toml::node &node, int64_t most);
/// A key that is a pattern of module paths.
std::string patternAt(const std::string &file, const std::string &pattern, const toml::node &node);
/// The table at a key, whose entries are rules: the last one in the file that matches wins.
std::vector<TomlEntry> rulesAt(const std::string &file, const char *key, const toml::node &node);

} // namespace cleave::partitioner
