// Checks of a traced model before compilation: likely mistakes, and parameters that exceed this machine's memory.
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"

#include <string>
#include <vector>

namespace cleave {

/// One line per warning: parameters and data fields that the loss does not depend on, or a model without trainable
/// parameters.
std::vector<std::string> warningsOf(GraphModule &graph);

/// Throws a user error that points at the largest parameter if all parameters together exceed this machine's memory.
void checkParametersFit(const Module &root);

} // namespace cleave
