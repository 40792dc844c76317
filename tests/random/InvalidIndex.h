// Labels and ids that nothing can mean, in a case's data.
#pragma once
#include "runtime/plan/PlanFile.h"
#include "tests/random/Recipe.h"

#include <memory>
#include <string>

namespace cleave::random_models {

/// Trains on data in which one value is no index that the model may read. Describes what happens unless the loader
/// refuses it by the field's name.
std::string trainOnInvalidIndex(const std::shared_ptr<const PlanFile> &file, const Recipe &recipe);

} // namespace cleave::random_models
