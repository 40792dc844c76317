// The record is one JSON object: {"cleave_tuning": 1, "choices": {key: choice}}.
#include "runtime/device/Tuning.h"

#include "runtime/base/AtomicFile.h"
#include "runtime/base/CacheFile.h"
#include "runtime/base/Error.h"
#include "runtime/base/InputFile.h"
#include "runtime/base/JsonText.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace cleave {

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

/// The folder of a file, made if it was missing and can be made.
std::filesystem::path folderFor(const std::string &file) {
  const auto parent = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (!parent.empty())
    std::filesystem::create_directories(parent, ignored);
  return parent.empty() ? "." : parent;
}

std::string print(const Choices &choices) {
  return jsonText(Json{{"cleave_tuning", 1}, {"choices", choices}}, 1) + "\n";
}

} // namespace

Tuning::Tuning(const std::string &where) : enabled(where != "off") {
  if (!enabled)
    return;
  cached = where.empty();
  file = cached ? cacheFile("tuning.json") : where;
  const std::string problem = read(choices);
  if (problem.empty())
    return;
  std::fputs(fmt::format("warning: {}: {} and is ignored\n", file, problem).c_str(), stderr);
  if (!cached)
    file.clear();
}

std::string Tuning::read(std::map<std::string, std::string> &into) const {
  constexpr uint64_t most = 64 << 20;
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error))
    return "";
  std::string text;
  if (cached) {
    OwnFile own = readOwnFile(file, most);
    if (!own.problem.empty())
      return own.problem;
    text = std::move(own.content);
  } else {
    try {
      text = readTextFile(file, Status::Environment, most);
    } catch (const Error &) { // is as one that is no record
    }
  }
  auto found = parse(text);
  if (!found)
    return "is not a tuning record";
  into = std::move(*found);
  return "";
}

Tuning::~Tuning() { unlock(); }

std::string Tuning::find(const std::string &key) {
  auto found = choices.find(key);
  missed |= found == choices.end();
  if (found == choices.end() && measures() && folder < 0) {
    lock();
    found = choices.find(key);
  }
  return found == choices.end() ? "" : found->second;
}

/// Also ends, without the lock, after a time in which nobody measures that long.
void Tuning::lock() {
  if (file.empty())
    return;
  folder = open(folderFor(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Choices others;
  read(others);
  for (const auto &[key, choice] : others)
    choices[key] = choice;
}

void Tuning::unlock() {
  if (folder >= 0)
    close(folder); // also releases the lock
  folder = -1;
}

void Tuning::put(const std::string &key, const std::string &choice) {
  std::string &kept = choices[key];
  changed |= kept != choice;
  kept = choice;
}

bool Tuning::hold(bool now) {
  held = now;
  return std::exchange(missed, false);
}

void Tuning::save() {
  if (!file.empty() && changed)
    try {
      Choices all;
      read(all);
      all.insert(choices.begin(), choices.end());
      folderFor(file);
      AtomicFile out(file);
      const std::string text = print(all);
      out.write(text.data(), text.size());
      out.commit();
      changed = false;
    } catch (const Error &) {
    }
  unlock();
}

std::string Tuning::text() const { return print(choices); }

void Tuning::adopt(const std::string &text) {
  for (const auto &[key, choice] : parse(text).value_or(Choices{}))
    put(key, choice);
}

} // namespace cleave
