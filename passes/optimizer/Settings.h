// The module attribute `cleave.optimizer` as a struct, and settings of single parameters.
#pragma once
#include "ir/graph/Graph.h"

#include <optional>
#include <string>

namespace cleave::passes {

enum class OptimizerKind { Sgd, Adam, AdamW };

/// Defaults are PyTorch's.
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::Sgd;
  double momentum = 0;
  bool nesterov = false;
  double weightDecay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  std::optional<double> clipNorm; // nullopt: gradients are not clipped

  /// Names of each parameter's state tensors.
  llvm::SmallVector<std::string> slots() const;
};

/// Throws userError for unknown settings and values out of range.
OptimizerSettings readOptimizerSettings(mlir::DictionaryAttr attributes);

/// A float or integer attribute as a number.
std::optional<double> numberAttr(mlir::Attribute attribute);

} // namespace cleave::passes
