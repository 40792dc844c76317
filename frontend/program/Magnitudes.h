// Magnitudes of the terms of a gradient's sum. The exact value may be 0, such as for a bias before a batch
// normalisation; two orders of addition then agree only in that the result is small compared with its terms.
#pragma once
#include "ir/GraphModule.h"

namespace cleave {

/// Adds to @train, for every result of kind "gradient", a result of kind "magnitude" with the same name: the sum of the
/// absolute values of the gradient's terms (for a matrix product: the absolute value of the gradient).
void addMagnitudes(GraphModule &step);

} // namespace cleave
