// The reasons for which a case may be rejected, each with a check that it is true of the case.
#pragma once
#include "tests/random/Recipe.h"

#include <string>

namespace cleave::random_models {

/// A short name of the reason that `message` gives, if it is a known one and holds; empty: it does not.
std::string trueReason(const Recipe &recipe, const std::string &message);

} // namespace cleave::random_models
