// The record is one JSON object: {"cleave_tuning": 1, "choices": {key: choice}}.
#include "runtime/cuda/library/Tuning.h"

#include "runtime/base/AtomicFile.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace cleave::cuda {

namespace {

using Json = nlohmann::json;
using Choices = std::map<std::string, std::string>;

std::optional<Choices> parse(const std::string &text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("cleave_tuning", Json()) != 1 || !json.contains("choices") ||
      !json["choices"].is_object())
    return std::nullopt;
  Choices choices;
  for (const auto &[key, choice] : json["choices"].items()) {
    if (!choice.is_string())
      return std::nullopt;
    choices[key] = choice.get<std::string>();
  }
  return choices;
}

/// nullopt if the file does not exist.
std::optional<Choices> readRecord(const std::string &file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    return std::nullopt;
  auto found = parse(readTextFile(file, Status::Environment, 64 << 20));
  if (!found)
    throw environmentError(fmt::format("{}: is not a tuning record; remove it to measure again", file));
  return found;
}

std::string print(const Choices &choices) {
  return jsonText(Json{{"cleave_tuning", 1}, {"choices", choices}}, 1) + "\n";
}

} // namespace

Tuning::Tuning(const std::string &where) : file(where == "off" ? "" : where) {
  if (!file.empty())
    choices = readRecord(file).value_or(Choices{});
}

std::string Tuning::find(const std::string &key) const {
  const auto found = choices.find(key);
  return found == choices.end() ? "" : found->second;
}

void Tuning::put(const std::string &key, const std::string &choice) {
  std::string &kept = choices[key];
  changed |= kept != choice;
  kept = choice;
}

void Tuning::save() {
  if (file.empty() || !changed)
    return;
  try {
    Choices all = readRecord(file).value_or(Choices{});
    for (const auto &[key, choice] : choices)
      all[key] = choice;
    std::error_code ignored;
    if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder, ignored);
    AtomicFile out(file);
    const std::string text = print(all);
    out.write(text.data(), text.size());
    out.commit();
    changed = false;
  } catch (const Error &) {
  }
}

std::string Tuning::text() const { return print(choices); }

void Tuning::adopt(const std::string &text) {
  for (const auto &[key, choice] : parse(text).value_or(Choices{}))
    put(key, choice);
}

std::string Tuning::defaultFile() {
  const std::string file = cacheFile("tuning.json");
  return file.empty() ? "off" : file;
}

} // namespace cleave::cuda
