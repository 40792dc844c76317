// The module attribute `cleave.optimizer`.
#pragma once
#include "ir/graph/Graph.h"
#include "runtime/plan/OptimizerFields.h"

#include <optional>
#include <string>

namespace cleave::passes {

/// Settings that are missing are PyTorch's. Throws userError for unknown ones and for values out of range.
plan::OptimizerT readOptimizer(mlir::DictionaryAttr attributes);

/// Names of each parameter's state tensors.
llvm::SmallVector<std::string> statesOf(const plan::OptimizerT &optimizer);

/// A float or integer attribute as a number.
std::optional<double> numberAttr(mlir::Attribute attribute);

} // namespace cleave::passes
