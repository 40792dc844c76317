// Rules of equal layers as one: how a plan's strategy is written, so that a person can read and change it.
#pragma once
#include "partitioner/strategy/Strategy.h"

namespace cleave::partitioner {

/// `rules`, each for one of `names`: those that say the same of "blocks.0.fc.weight", "blocks.1.fc.weight", ... become
/// one for "blocks.*.fc.weight", where everything of `names` that this matches is among them. No two of the result
/// match the same name, so they read back to the same whatever their order.
std::vector<ShardRule> foldRules(const std::vector<ShardRule> &rules, const std::vector<std::string> &names);

} // namespace cleave::partitioner
