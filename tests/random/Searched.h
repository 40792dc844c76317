// Cases whose strategy a search finds.
#pragma once
#include "tests/random/Recipe.h"

namespace cleave::random_models {

/// The case with the strategy that the search finds for it. The number of microbatches, and what `stagesAndShards`
/// lists, stay as they are. Throws what the search does.
Recipe withFoundStrategy(const Recipe &recipe);

} // namespace cleave::random_models
