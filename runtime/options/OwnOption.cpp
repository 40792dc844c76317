// Reads, checks and prints the values of a program's own options.
#include "runtime/options/OwnOption.h"
#include "runtime/base/JsonText.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Parts.h"
#include "runtime/options/Option.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

std::string textOf(const OptionValue &value) {
  if (const auto *list = std::get_if<std::vector<int64_t>>(&value))
    return fmt::format("{}", fmt::join(*list, ","));
  return std::visit(
      [](const auto &one) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, std::vector<int64_t>>)
          return {};
        else
          return fmt::format("{}", one);
      },
      value);
}

static std::vector<std::string> textsOf(const std::vector<OptionValue> &values) {
  std::vector<std::string> texts;
  for (const OptionValue &value : values)
    texts.push_back(textOf(value));
  return texts;
}

std::string ruleOf(const OwnOption &option) {
  if (!option.choices.empty())
    return fmt::format("one of {}", fmt::join(textsOf(option.choices), ", "));
  const std::string rules[] = {"true or false", wholeNumber(option.least, option.most), "a number", "text in UTF-8",
                               "numbers separated by commas, each " + wholeNumber(option.least, option.most)};
  return rules[option.otherwise.index()];
}

bool allows(const OwnOption &option, const OptionValue &value) {
  if (value == option.otherwise)
    return true;
  if (!option.choices.empty())
    return std::ranges::find(option.choices, value) != option.choices.end();
  const auto within = [&](int64_t whole) { return whole >= option.least && whole <= option.most; };
  if (const auto *whole = std::get_if<int64_t>(&value))
    return within(*whole);
  if (const auto *list = std::get_if<std::vector<int64_t>>(&value))
    return !list->empty() && std::ranges::all_of(*list, within);
  if (const auto *words = std::get_if<std::string>(&value)) // others cannot be stored
    return parseJson(jsonText(nlohmann::json(*words)), option.name) == *words;
  return true;
}

/// The value as it is written, whatever the option allows.
static std::optional<OptionValue> readAs(const OptionValue &type, const std::string &text) {
  if (std::holds_alternative<bool>(type))
    return text == "true" || text == "1"    ? std::optional<OptionValue>(true)
           : text == "false" || text == "0" ? std::optional<OptionValue>(false)
                                            : std::nullopt;
  if (std::holds_alternative<int64_t>(type))
    return parseNumber<int64_t>(text);
  if (std::holds_alternative<double>(type))
    return parseNumber<double>(text);
  if (std::holds_alternative<std::string>(type))
    return text;
  std::vector<int64_t> list;
  for (const std::string &part : partsOf(text, ','))
    if (const auto whole = parseNumber<int64_t>(part))
      list.push_back(*whole);
    else
      return std::nullopt;
  return list;
}

std::optional<OptionValue> valueOf(const OwnOption &option, const std::string &text) {
  if (text == textOf(option.otherwise)) // an empty list, infinity
    return option.otherwise;
  const std::optional<OptionValue> value = readAs(option.otherwise, text);
  return value && allows(option, *value) ? value : std::nullopt;
}

std::string problemOf(const OwnOption &option, const std::string &text) {
  return valueOf(option, text) ? "" : "must be " + ruleOf(option) + suggestion(text, textsOf(option.choices));
}

std::string typeOf(const OwnOption &option) {
  if (!option.choices.empty())
    return fmt::format("{}", fmt::join(textsOf(option.choices), "|"));
  constexpr const char *types[] = {"true|false", "N", "X", "TEXT", "N,N,..."};
  return types[option.otherwise.index()];
}

} // namespace cleave
