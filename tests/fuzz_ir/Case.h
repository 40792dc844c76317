// One case: valid IR of some phase, its modification, and the compiler's result.
#pragma once
#include "tests/random/Run.h"

#include <string>

namespace cleave::fuzz_ir {

/// The altered text of a seed, or what it was before.
std::string textOf(uint64_t seed, bool good);
/// Reads it, and runs what would follow. Failed: what is neither a success nor a diagnostic. `kind` says where it
/// ended.
random_models::Result run(uint64_t seed);

} // namespace cleave::fuzz_ir
