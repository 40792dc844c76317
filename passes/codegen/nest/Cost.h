// Approximate costs of operations and kernels, compared by fusion.
#pragma once
#include "passes/codegen/nest/LoopNest.h"

namespace cleave::passes::kernel {

/// Cycles for one vector of this value (a float op with AVX-512), without its operands.
double operationCycles(const LoopValue &value);

} // namespace cleave::passes::kernel
