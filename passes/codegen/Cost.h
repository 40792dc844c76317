// Rough costs of operations and kernels: what fusion compares.
#pragma once
#include "passes/codegen/Program.h"

namespace cleave::passes::kernel {

/// Cycles one vector of this value takes (a float op with AVX-512), operands excluded.
double operationCycles(const ProgramValue &value);

} // namespace cleave::passes::kernel
