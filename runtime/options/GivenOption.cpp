// Cuts a command line into options and their values.
#include "runtime/options/GivenOption.h"

#include <algorithm>
#include <cctype>

namespace cleave {

static bool namesOption(const std::string &word) {
  return word.size() > 1 && word[0] == '-' && (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])));
}

/// The option that a word names, with the value that is joined to it.
static GivenOption named(const std::string &word, const std::function<TakesValue(const std::string &)> &takes) {
  if (word[1] != '-' && word.size() > 2 && takes(word.substr(0, 2)) == TakesValue::Yes)
    return {word.substr(0, 2), word.substr(2)};
  const size_t equals = std::min(word.find('='), word.size());
  return {word.substr(0, equals), equals < word.size() ? std::optional(word.substr(equals + 1)) : std::nullopt};
}

std::vector<GivenOption> givenOptions(const std::vector<std::string> &words,
                                      const std::function<TakesValue(const std::string &name)> &takes) {
  std::vector<GivenOption> given;
  bool ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (ended || !namesOption(words[i]) || words[i] == "--") {
      ended = ended || words[i] == "--";
      given.push_back({"", words[i]});
      continue;
    }
    GivenOption &option = given.emplace_back(named(words[i], takes));
    if (!option.value && i + 1 < words.size() && !namesOption(words[i + 1]) && takes(option.name) != TakesValue::No)
      option.value = words[++i];
  }
  return given;
}

std::vector<std::string> wordsOf(const std::vector<GivenOption> &given) {
  std::vector<std::string> words;
  for (const auto &[name, value] : given) {
    if (!value) {
      words.push_back(name);
    } else if (name.empty()) {
      words.push_back(*value);
    } else if (value->empty()) { // CLI11 takes the next word for a joined value that is empty
      words.insert(words.end(), {name, ""});
    } else
      words.push_back(name + (name.starts_with("--") ? "=" : "") + *value);
  }
  return words;
}

} // namespace cleave
