// Command lines by CLI11, with Cleave's exit statuses and error messages.
#pragma once
#include "runtime/options/GivenOption.h"
#include "runtime/options/Option.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cleave {

/// Adds the options of a command (of `commands`), which write to `run`.
void addOptions(CLI::App &app, const std::vector<Option> &options, unsigned command, RunOptions &run);

/// Accepts whole numbers within the limits, both included.
std::function<std::string(const std::string &)> wholeNumberCheck(int64_t least, int64_t most);

/// "--batch", "-o": all names of the command's options.
std::vector<std::string> optionNames(const CLI::App &command);

/// Refuses empty values of the options so far: they would look like missing ones.
void refuseEmptyTexts(CLI::App &command);

/// Parses the command line `args`, without the program's name. Returns false if --help or --version was printed; --help
/// goes before every mistake in other options. Throws userError with the offending word, and the nearest one that is
/// known. Empty values are refused if there are no subcommands.
bool parseCommandLine(CLI::App &app, std::vector<std::string> args);

} // namespace cleave
