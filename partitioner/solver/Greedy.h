// Choices from the costs of a bound: nodes one after another, each the choice that is best with those before it.
#pragma once
#include "partitioner/solver/Dual.h"

namespace cleave::partitioner {

/// Choices within the rows and without forbidden pairs, or none if the nodes' order leads to no such choices.
Choices greedyChoices(const Model &model, const Dual &dual);

} // namespace cleave::partitioner
