// Declares a program's own options, and chooses their values.
#include "frontend/program/OwnOptions.h"
#include "frontend/trace/Diagnose.h"
#include "runtime/base/JsonText.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

// ---- stored values --------------------------------------------------------------------------------------------------

/// JSON has no infinities and NaN, which defaults may be: they are stored as texts.
static nlohmann::json jsonOf(const OptionValue &value) {
  if (const auto *number = std::get_if<double>(&value); number && !std::isfinite(*number))
    return textOf(value);
  return std::visit([](const auto &one) { return nlohmann::json(one); }, value);
}

/// The value of this type that is stored; nullopt: it has another type.
static std::optional<OptionValue> ofJson(const OwnOption &option, const nlohmann::json &json) {
  const auto whole = [](const nlohmann::json &one) {
    return one.is_number_integer() && (!one.is_number_unsigned() || one.get<uint64_t>() <= INT64_MAX);
  };
  const OptionValue &type = option.otherwise;
  if (std::holds_alternative<bool>(type) && json.is_boolean())
    return json.get<bool>();
  if (std::holds_alternative<int64_t>(type) && whole(json))
    return json.get<int64_t>();
  if (std::holds_alternative<double>(type) && json.is_number())
    return json.get<double>();
  if (std::holds_alternative<double>(type) && json.is_string() && json == textOf(type))
    return type;
  if (std::holds_alternative<std::string>(type) && json.is_string())
    return json.get<std::string>();
  if (std::holds_alternative<std::vector<int64_t>>(type) && json.is_array() && std::ranges::all_of(json, whole))
    return json.get<std::vector<int64_t>>();
  return std::nullopt;
}

static std::string shown(const std::string &text) { return text.empty() ? "\"\"" : text; }

std::string textOfStored(const nlohmann::json &value) {
  if (value.is_string())
    return shown(value.get<std::string>());
  if (!value.is_array())
    return jsonText(value);
  std::vector<std::string> parts;
  for (const auto &part : value)
    parts.push_back(jsonText(part));
  return shown(fmt::format("{}", fmt::join(parts, ",")));
}

// ---- declarations ---------------------------------------------------------------------------------------------------

void OwnOptions::keepMistake(const std::function<void()> &fn) {
  try {
    fn();
  } catch (const Error &) {
    if (!mistake)
      mistake = std::current_exception();
  }
}

/// Throws a ModelError if the option cannot have its name.
static void checkName(const OwnOption &option, const std::deque<OwnOption> &declared,
                      const std::set<std::string> &builtIn, Where where) {
  const auto wrong = [&](const std::string &why) {
    failAt(fmt::format("option {}: {}", shown(option.name), why), {}, where);
  };
  const std::string word = option.name.starts_with("--") ? option.name.substr(2) : "";
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  if (word.empty() || !std::isalnum(static_cast<unsigned char>(word[0])) || !std::ranges::all_of(word, fits))
    wrong("a name is two dashes and a word of letters, digits, dashes, dots and underscores, such as --width");
  if (builtIn.contains(option.name))
    wrong(option.command.empty() ? "every program has an option of this name; choose another"
                                 : "every command has an option of this name; choose another");
  if (std::ranges::any_of(declared, [&](const OwnOption &other) {
        return other.name == option.name &&
               (other.command.empty() || option.command.empty() || other.command == option.command);
      }))
    wrong("is declared twice");
}

OptionValue OwnOptions::declare(OwnOption option, const std::set<std::string> &builtIn, Where where) {
  bool named = false;
  keepMistake([&] {
    checkName(option, declared, builtIn, where);
    named = true;
    choose(option);
  });
  if (named)
    declared.push_back(option);
  return option.value;
}

/// The value that the command line gives. A boolean without value is true.
std::optional<OptionValue> OwnOptions::givenTo(const OwnOption &option) {
  for (GivenOption &each : line) {
    if (each.name != option.name)
      continue;
    if (!each.value && std::holds_alternative<bool>(option.otherwise))
      each.value = "true";
    if (!each.value) // reported with the command line
      return std::nullopt;
    if (const std::string problem = problemOf(option, *each.value); !problem.empty())
      throw userError(fmt::format("{} {}: {}", option.name, shown(*each.value), problem));
    return valueOf(option, *each.value);
  }
  return std::nullopt;
}

std::optional<OptionValue> OwnOptions::recipeFor(const OwnOption &option) const {
  for (const RecipeValue &each : recipe) {
    if (each.name != option.name)
      continue;
    if (const std::string problem = problemOf(option, each.value); !problem.empty())
      throw userError(fmt::format("{}: {} {}: {}", each.place, option.name, shown(each.value), problem));
    return valueOf(option, each.value);
  }
  return std::nullopt;
}

void OwnOptions::choose(OwnOption &option) {
  const std::optional<OptionValue> given = givenTo(option);
  const auto found = option.command.empty() ? stored.find(option.name.substr(2)) : stored.end();
  if (found == stored.end()) {
    option.value = given ? *given : recipeFor(option).value_or(option.otherwise);
    return;
  }
  const std::optional<OptionValue> kept = ofJson(option, *found);
  if (given && storedYields) {
    option.value = *given;
    return;
  }
  if (!kept || !allows(option, *kept))
    throw userError(
        fmt::format("{} has {} {}, which must be {}", storedIn, option.name, textOfStored(*found), ruleOf(option)));
  if (given && *given != *kept)
    throw userError(
        fmt::format("{} {}: {} has {}", option.name, shown(textOf(*given)), storedIn, shown(textOf(*kept))));
  option.value = *kept;
}

void OwnOptions::check(const std::string &program) const {
  if (mistake)
    std::rethrow_exception(mistake);
  const auto has = [&](const std::string &name, bool ofModel) {
    return std::ranges::any_of(
        declared, [&](const OwnOption &option) { return option.name == name && (option.command.empty() || !ofModel); });
  };
  for (const RecipeValue &each : recipe)
    if (!each.known && !has(each.name, false))
      throw userError(fmt::format("{}: {} has no option {}", each.place, program, each.name));
  for (const auto &[key, value] : stored.items())
    if (!has("--" + key, true))
      throw userError(fmt::format("{}: the model has no option --{}", storedIn, key));
}

std::vector<Option> OwnOptions::rowsOf(const std::string &command, unsigned bit) const {
  std::vector<Option> rows;
  for (const OwnOption &option : declared)
    if (option.command.empty() || option.command == command)
      rows.push_back({.name = option.name.c_str(),
                      .field = &option,
                      .type = typeOf(option),
                      .uses = {{bit, fmt::format("{} (default: {})", option.help, shown(textOf(option.otherwise)))}},
                      .group = option.command.empty() ? "Model" : "Options"});
  return rows;
}

std::string OwnOptions::json() const {
  nlohmann::ordered_json json = nlohmann::json::object();
  for (const OwnOption &option : declared)
    if (option.command.empty())
      json[option.name.substr(2)] = jsonOf(option.value);
  return asciiJsonText(json);
}

} // namespace cleave
