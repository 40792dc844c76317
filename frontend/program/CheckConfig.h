// Checks the numbers that a program's code gives.
#pragma once
#include "cleave/Trainer.h"

namespace cleave {

/// Throws userError that names the field of TrainConfig, the rule and the value. What an option of the command line
/// sets, too, has the option's limits. The batch is checked where it is chosen.
void checkConfig(const TrainConfig &config);

} // namespace cleave
