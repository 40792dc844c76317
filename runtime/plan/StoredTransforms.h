// Transforms of pictures as plans store them.
#pragma once
#include "cleave/Transforms.h"
#include "runtime/plan/PlanTypes.h"

#include <memory>
#include <string>
#include <vector>

namespace cleave {

using StoredTransforms = std::vector<std::unique_ptr<plan::TransformT>>;

StoredTransforms storedTransforms(const Transforms &transforms);
/// The reverse. Throws environmentError if a transform has another number of numbers, or if they cannot be.
Transforms transformsOf(const StoredTransforms &stored);

} // namespace cleave
