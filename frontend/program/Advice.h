// What a traced model tells before anything is compiled: what is surely not meant, and what this machine cannot hold.
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"

#include <string>
#include <vector>

namespace cleave {

/// One line each: parameters and data fields that the loss does not depend on, a model of which nothing is trained.
std::vector<std::string> warningsOf(GraphModule &graph);

/// Throws a user error at the largest parameter where all of them together are larger than this machine's memory.
void checkParametersFit(const Module &root);

} // namespace cleave
