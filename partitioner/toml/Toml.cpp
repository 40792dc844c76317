// Parses and quotes TOML.
#include "partitioner/toml/Toml.h"

#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>

namespace cleave::partitioner {

/// toml++ recurses into each part of a key a.b.c..., without a limit. Dots inside quotes do not count.
static void refuseDeepKeys(const std::string &text, const std::string &file) {
  constexpr int most = 64;
  int line = 1, dots = 0;
  char quote = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
      quote = 0; // the string ends here, or continues without a key
    } else if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '.' && ++dots > most)
      throw userError(fmt::format("{}:{}: a key must have at most {} parts", file, line, most));
  }
}

toml::table parseToml(const std::string &text, const std::string &file) {
  refuseDeepKeys(text, file);
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error &error) {
    throw userError(fmt::format("{}:{}:{}: {}", file, error.source().begin.line, error.source().begin.column,
                                std::string(error.description())));
  }
}

std::string at(const std::string &file, const toml::node &node) {
  return fmt::format("{}:{}:{}", file, node.source().begin.line, node.source().begin.column);
}

std::vector<TomlEntry> inFileOrder(const toml::table &table) {
  std::vector<TomlEntry> entries;
  for (const auto &[key, value] : table)
    entries.push_back({std::string(key.str()), &value});
  std::sort(entries.begin(), entries.end(), [](const TomlEntry &a, const TomlEntry &b) {
    return a.value->source().begin < b.value->source().begin;
  });
  return entries;
}

std::string quote(const std::string &text) {
  std::string out = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  return out + "\"";
}

} // namespace cleave::partitioner
