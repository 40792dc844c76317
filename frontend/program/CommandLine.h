// The options of every program's commands, stored by CLI11 in one struct.
#pragma once
#include "cleave/Trainer.h"

#include <CLI/CLI.hpp>

namespace cleave {

struct CommandLine {
  RunOptions run;
  std::string output; ///< -o
};

/// Adds train, eval, predict, plan, check and graph with their options to `app`. `line` must outlive `app`.
void addCommands(CLI::App &app, CommandLine &line);
/// Adds the options of commands that compute a checkpoint's outputs.
void addPrediction(CLI::App &command, RunOptions &run);

} // namespace cleave
