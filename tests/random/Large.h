// Plans cases with tensors of 2^30 to 2^40 elements: counts of elements, bytes and operations exceed 32 bits.
#pragma once
#include "tests/random/Run.h"

namespace cleave::random_models {

/// Plans the case, for processors and for GPUs, without code, with so many more rows that the seed's largest tensor has
/// about 2^30, 2^31, 2^32 or 2^40 elements (by seed; fewer if the batch would be too large). Any user error is a
/// refusal: the code of many models fixes the rows.
Result planLarge(const Recipe &recipe);

} // namespace cleave::random_models
