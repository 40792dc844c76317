// The module attribute `cleave.optimizer` as a struct, and a parameter's own settings.
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
  std::optional<double> clipNorm; // none: gradients are not clipped

  /// Names of the state tensors each parameter has.
  llvm::SmallVector<std::string> slots() const;
};

/// Throws userError for what it does not know or what is out of range.
OptimizerSettings readOptimizerSettings(mlir::DictionaryAttr attributes);

/// A float or integer attribute as a number.
std::optional<double> numberAttr(mlir::Attribute attribute);

} // namespace cleave::passes
