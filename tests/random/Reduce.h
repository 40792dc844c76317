// Reduces a failing case while it fails in the same way (delta debugging; Zeller and Hildebrandt 2002).
#pragma once
#include "tests/random/Children.h"

namespace cleave::random_models {

/// Returns the smallest case found that still fails with the same `kind`.
Recipe reduced(Recipe recipe, const RunSettings &settings, const std::string &kind, const ChildLimits &limits);

} // namespace cleave::random_models
