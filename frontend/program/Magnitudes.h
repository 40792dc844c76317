// How large the terms were that a gradient is the sum of. A gradient may be truly 0, such as that of a bias before a
// batch normalisation: then all that two ways of adding have in common is that the result is small beside its terms.
#pragma once
#include "ir/GraphModule.h"

namespace cleave {

/// Gives @train of a step, for every result of kind "gradient", another of kind "magnitude" with its name: the sum of
/// the absolute values of what the gradient sums up (of a product of matrices: the gradient's absolute value).
void addMagnitudes(GraphModule &step);

} // namespace cleave
