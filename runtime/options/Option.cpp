// Checks and prints values by the description of their option.
#include "runtime/options/Option.h"
#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"
#include "runtime/base/Sha256.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

/// The value of a field as text; nullopt: it is that of RunOptions().
template <class T> static std::optional<std::string> valueOfField(T RunOptions::*field, const RunOptions &run) {
  static const RunOptions nothing;
  const auto &value = run.*field;
  if (value == nothing.*field)
    return std::nullopt;
  if constexpr (std::is_same_v<T, bool>)
    return "given";
  else if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return fmt::format("{}", fmt::join(value, ","));
  else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, int64_t>)
    return fmt::format("{}", value);
  else
    return fmt::format("{}", *value);
}

static std::optional<std::string> valueOfField(const OwnOption *own, const RunOptions &) {
  return own->value == own->otherwise ? std::nullopt : std::optional(textOf(own->value));
}

std::optional<std::string> valueOf(const Option &option, const RunOptions &run) {
  return std::visit([&](auto field) { return valueOfField(field, run); }, option.field);
}

std::string wholeNumber(int64_t least, int64_t most) {
  std::string text = "a whole number";
  if (least != std::numeric_limits<int64_t>::min())
    text += fmt::format(" from {}", least);
  if (most != std::numeric_limits<int64_t>::max())
    text += fmt::format("{} to {}", text == "a whole number" ? " up" : "", most);
  return text;
}

std::string problemOfWhole(const std::string &text, int64_t least, int64_t most) {
  const std::optional<int64_t> value = parseNumber<int64_t>(text);
  return value && *value >= least && *value <= most ? "" : "must be " + wholeNumber(least, most);
}

/// A limit as a whole number; infinity is the type's.
static int64_t wholeLimit(double limit) {
  using Range = std::numeric_limits<int64_t>;
  return limit <= -0x1p63 ? Range::min() : limit >= 0x1p63 ? Range::max() : static_cast<int64_t>(limit);
}

std::string problemOfNumber(const Limits &limits, const std::string &text) {
  const std::optional<double> value = parseNumber<double>(text);
  const bool fits = value && (*value == 0 || std::isnormal(static_cast<float>(*value))) && *value >= limits.least &&
                    *value < limits.most;
  return fits ? "" : fmt::format("must be a number in [{}, {}) that 32 bits hold", limits.least, limits.most);
}

/// Why `text` is no value of a field of this type.
template <class T> static std::string problemOfField(const Option &option, T RunOptions::*, const std::string &text) {
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>)
    return problemOfWhole(text, wholeLimit(option.limits.least), wholeLimit(option.limits.most));
  else if constexpr (std::is_same_v<T, std::optional<uint64_t>>)
    return parseNumber<uint64_t>(text) ? "" : "must be " + wholeNumber(0, std::numeric_limits<int64_t>::max());
  else if constexpr (std::is_same_v<T, std::optional<double>>)
    return problemOfNumber(option.limits, text);
  else
    return text.empty() ? "must not be empty" : "";
}

static std::string problemOfField(const Option &, const OwnOption *own, const std::string &text) {
  return problemOf(*own, text);
}

std::string problemOf(const Option &option, const std::string &text) {
  return std::visit([&](auto field) { return problemOfField(option, field, text); }, option.field);
}

void checkOptions(const std::vector<Option> &options, const RunOptions &run) {
  for (const Option &option : options) {
    const std::optional<std::string> value = valueOf(option, run);
    if (!value)
      continue;
    if (const std::string problem = problemOf(option, *value); !problem.empty())
      throw userError(fmt::format("{} {}: {}", option.name, *value, problem));
    if (!option.words.empty())
      oneOf(option.name, *value, "", option.words);
  }
}

std::vector<std::pair<std::string, std::string>> valuesToAgree(const std::vector<Option> &options,
                                                               const RunOptions &run) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Option &option : options) {
    if (option.ranks == Option::Agree::Nothing)
      continue;
    std::string text = "not given";
    if (const std::optional<std::string> value = valueOf(option, run)) {
      std::error_code error;
      const bool file = option.ranks == Option::Agree::Contents && std::filesystem::is_regular_file(*value, error);
      const bool named = option.ranks == Option::Agree::Given && value != "synthetic";
      text = named ? "given" : file ? digestOfFile(*value) : *value;
    }
    const bool found = run.resumeIfAny && option.name == std::string_view("--resume"); // whether there is a checkpoint
    values.emplace_back(found ? "checkpoint to resume" : option.name, text);
  }
  return values;
}

} // namespace cleave
