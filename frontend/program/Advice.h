// Checks of a traced model before compilation: likely mistakes, and parameters that exceed this machine's memory.
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"
#include "runtime/base/Precision.h"
#include "runtime/base/Target.h"

#include <string>
#include <vector>

namespace cleave {

/// One line per warning: parameters and data fields that the loss does not depend on, a model without trainable
/// parameters, or outputs for more classes than the data (fieldsOf) have.
std::vector<std::string> warningsOf(GraphModule &graph, const std::vector<DataField> &data);
/// A line if the target computes products of this precision in f32, so that half precision saves memory alone; else
/// empty.
std::string warningOf(const Precision &precision, Target target);

/// Throws a user error that points at the largest parameter if all parameters together exceed this machine's memory.
void checkParametersFit(const Module &root);

} // namespace cleave
