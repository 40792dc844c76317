// Magnitudes of the terms that are summed to a gradient. The exact sum may be 0, for example for a bias before a batch
// normalisation; sums in two orders of addition then agree only in that both are small compared with their terms.
#pragma once
#include "ir/GraphModule.h"

namespace cleave {

/// Adds to @train, for every result of kind "gradient", a result of kind "magnitude" with the same name: the sum of the
/// absolute values of the gradient's terms (for a matrix product: the absolute value of the gradient).
void addMagnitudes(GraphModule &step);

} // namespace cleave
