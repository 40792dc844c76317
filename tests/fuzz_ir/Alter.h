// Modifications of IR as text, as made by an editor or by a program that generates IR.
#pragma once
#include "tests/random/Chance.h"

#include <string>
#include <vector>

namespace cleave::fuzz_ir {

using random_models::Chance;

/// Alters the text at one to four places. `ops`: names that may replace the name of an op.
std::string altered(std::string text, const std::vector<std::string> &ops, Chance &chance);

} // namespace cleave::fuzz_ir
