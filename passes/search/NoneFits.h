// Says why a search found no plan.
#pragma once
#include "partitioner/search/Search.h"
#include "partitioner/strategy/Decisions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace cleave::passes {

/// Why no plan of the space can be made, or fits `devices`. `problem`: of the last that was compiled; `pinned`: see
/// largestPinned.
std::string noneFits(const partitioner::SearchOutcome &outcome, const std::string &devices, const std::string &problem,
                     const std::string &pinned);

/// Names the largest parameter of a traced model whose split a rule pins, with its size; empty if there is none.
std::string largestPinned(mlir::func::FuncOp forward, const partitioner::Decisions &pins);

} // namespace cleave::passes
