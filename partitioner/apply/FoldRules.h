// Merges the rules of equal layers, so that a plan's strategy is short enough to read and edit.
#pragma once
#include "partitioner/strategy/Decisions.h"

namespace cleave::partitioner {

/// Merges `rules`, each of which is for one of `names`: equal rules for "blocks.0.fc.weight", "blocks.1.fc.weight", ...
/// become one rule for "blocks.*.fc.weight" if there is a rule for every name that the pattern matches. No two
/// resulting rules match the same name, so their order does not matter.
std::vector<ShardRule> foldRules(const std::vector<ShardRule> &rules, const std::vector<std::string> &names);

/// Merges equal marks of equal layers on one line of the code.
std::vector<Mark> foldMarks(std::vector<Mark> marks);

} // namespace cleave::partitioner
