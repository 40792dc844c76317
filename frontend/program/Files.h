// The files of a program's command, and where its data are.
#pragma once
#include "cleave/Trainer.h"

#include <string>
#include <vector>

namespace cleave {

/// Throws userError if an output (--metrics, --trace, or one of `outputs`) is another file that the command reads or
/// writes. Call it before anything is written.
void checkFiles(const Data &data, const RunOptions &options, const std::vector<std::string> &outputs = {});

/// The program's own data set, or null.
const Dataset *customData(const Data &data);
/// Tells the program's own data set where --data is. Throws userError if that is nowhere, or if it does not read it.
void openOwnData(const Data &data, const RunOptions &options);
/// The location of the data; throws userError if it is required and missing, or does not exist.
std::string dataPlace(const Data &data, const RunOptions &options);

} // namespace cleave
