// The command `data` of every program: what the model is given for one sample.
#pragma once
#include "cleave/Trainer.h"

#include <optional>
#include <string>

namespace cleave {

struct SampleRequest {
  std::string split = "train"; ///< or "eval"
  std::optional<int64_t> index;
  std::string file;   ///< a picture instead of a sample of the data set
  std::string output; ///< FILE.npy or FILE.png; empty: none
};

/// Prints the fields of a sample, as an epoch's first step or an evaluation is given them, and writes the first field
/// to the output. Throws userError that names the option, the rule and the value.
void showSample(const Data &data, const RunOptions &options, const SampleRequest &request);

} // namespace cleave
