// What the loss depends on in the traced graph, found without the differentiation that is tested.
#pragma once
#include "ir/GraphModule.h"
#include "tests/random/Numbers.h"

#include <string>

namespace cleave::random_models {

/// Whether the loss depends on a detached value, for example on running statistics after their update: its gradients
/// then differ from its derivatives.
bool stopsGradients(const GraphModule &traced);

/// Describes a parameter on which the loss does not depend, or that is frozen, and that training changes or has states
/// for; empty if there is none.
std::string trainedWithoutUse(const GraphModule &traced, const ir::Slots &beginning, const Steps &steps);

} // namespace cleave::random_models
