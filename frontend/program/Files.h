// The files of a program's command.
#pragma once
#include "cleave/Trainer.h"

#include <string>
#include <vector>

namespace cleave {

/// Throws userError if an output (--metrics, --trace, or one of `outputs`) is another file that the command reads or
/// writes. Call it before anything is written.
void checkFiles(const Data &data, const RunOptions &options, const std::vector<std::string> &outputs = {});

} // namespace cleave
