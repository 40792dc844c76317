// Command lines of the tools: CLI11 with Cleave's exit statuses and error messages.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

namespace cleave {

/// Accepts integers from `least` (1) to `most`, and none that the option's type cannot hold: CLI11 wraps or clamps those.
template <int64_t most = std::numeric_limits<int64_t>::max(), int64_t least = 1>
std::string checkPositive(const std::string &text) {
  const std::optional<int64_t> value = parseNumber<int64_t>(text);
  if (value && *value >= least && *value <= most)
    return "";
  const bool bounded = most != std::numeric_limits<int64_t>::max();
  return "must be a whole number from " + std::to_string(least) + (bounded ? " to " + std::to_string(most) : "") +
         ", found " + text;
}

/// Accepts integers from 0.
inline std::string checkNotNegative(const std::string &text) {
  return checkPositive<std::numeric_limits<int64_t>::max(), 0>(text);
}

/// Rejects an empty text, which would look like a missing option.
inline std::string checkNotEmpty(const std::string &text) { return text.empty() ? "must not be empty" : ""; }

/// Parses the command line. Returns false if --help or --version was printed. Throws userError with the offending word.
inline bool parseCommandLine(CLI::App &app, int argc, const char *const *argv) {
  app.set_version_flag("--version", std::string("cleave ") + CLEAVE_VERSION);
  std::vector<std::string> known;
  for (CLI::Option *option : app.get_options({})) {
    if (option->get_expected_min() > 0) // not a flag
      option->check(checkNotEmpty);
    for (const std::string &name : option->get_lnames())
      known.push_back("--" + name);
    for (const std::string &name : option->get_snames())
      known.push_back("-" + name);
  }
  checkOptionNames({argv + 1, argv + argc}, known, app.get_name());
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp &) {
    std::fputs(app.help().c_str(), stdout);
  } catch (const CLI::CallForAllHelp &) {
    std::fputs(app.help("", CLI::AppFormatMode::All).c_str(), stdout);
  } catch (const CLI::CallForVersion &e) {
    std::puts(e.what());
  } catch (const CLI::ParseError &e) {
    throw userError(std::string(e.what()) + " (" + app.get_name() + " --help lists the options)");
  }
  return false;
}

} // namespace cleave
