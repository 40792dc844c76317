// Reduces a failing case while it fails in the same way (delta debugging; Zeller and Hildebrandt 2002).
#pragma once
#include "tests/random/Children.h"

namespace cleave::random_models {

/// `kind`: of the failure. Returns the smallest case found that still fails so.
Recipe reduced(Recipe recipe, const RunSettings &settings, const std::string &kind, const ChildLimits &limits);

} // namespace cleave::random_models
