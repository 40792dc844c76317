// The options of every program's commands, as one struct filled by CLI11.
#pragma once
#include "cleave/Trainer.h"

#include <CLI/CLI.hpp>

namespace cleave {

struct CommandLine {
  RunOptions run;
  std::string output; ///< -o
};

/// Adds train, eval, predict, plan, check and graph with their options to `app`. `line` outlives it.
void addCommands(CLI::App &app, CommandLine &line);
/// The options of a command that computes a checkpoint's outputs.
void addPrediction(CLI::App &command, RunOptions &run);

} // namespace cleave
