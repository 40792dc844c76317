// The reasons for which a case may be refused, each with a check that it is true of the case.
#pragma once
#include "tests/random/Recipe.h"

#include <string>

namespace cleave::random_models {

/// The short name of the reason in `message`, if the reason is known and true of the case; otherwise empty.
std::string trueReason(const Recipe &recipe, const std::string &message);

} // namespace cleave::random_models
