// One case: valid IR of some phase, its modification, and the compiler's result.
#pragma once
#include "tests/random/Run.h"

#include <string>

namespace cleave::fuzz_ir {

/// The altered text of a seed; with `good`, the text before the alteration.
std::string textOf(uint64_t seed, bool good);
/// Parses the altered text and runs passes or the compiler on it. The verdict is Failed if the result is neither a
/// success nor a diagnostic. `kind` names the step that ended the case.
random_models::Result run(uint64_t seed);

} // namespace cleave::fuzz_ir
