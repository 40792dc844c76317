// Helpers for the graph dialect's type inference and verifiers. Ops with inferred result types check their
// constraints during inference, so that building and parsing report the same message.
#pragma once
#include "ir/graph/Graph.h"

namespace cleave::ir {

/// Reports that `op` ("cleave.matmul") violates a constraint: 'cleave.matmul' op C2: ...
template <typename... Parts>
mlir::LogicalResult broken(std::optional<mlir::Location> loc, llvm::StringRef op, Parts &&...parts) {
  return mlir::emitOptionalError(loc, "'", op, "' op ", std::forward<Parts>(parts)...);
}

inline mlir::Type elementOf(mlir::Value value) { return tensorType(value).getElementType(); }

/// Whether `dims` increase strictly and lie in [0, rank).
inline bool increasesWithin(llvm::ArrayRef<int64_t> dims, int64_t rank) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] < 0 || dims[i] >= rank || (i && dims[i] <= dims[i - 1]))
      return false;
  return true;
}

/// `shape` as text in messages: 48x784.
inline std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

/// Checks C1 to C5 of a convolution of shapes `input` and `weight` (GraphOps.td); returns its output shape. `last`:
/// channels last.
mlir::FailureOr<llvm::SmallVector<int64_t>> convShape(std::optional<mlir::Location> loc, llvm::StringRef name,
                                                      llvm::ArrayRef<int64_t> input, llvm::ArrayRef<int64_t> weight,
                                                      llvm::ArrayRef<int64_t> stride, llvm::ArrayRef<int64_t> padding,
                                                      llvm::ArrayRef<int64_t> dilation, int64_t groups, bool last);
/// Checks C1 and C2 of an embedding's gradient, for the graph dialect and for the library dialect.
mlir::LogicalResult checkEmbeddingGrad(mlir::Operation *op, mlir::Value grad, mlir::Value ids, mlir::Value result);

} // namespace cleave::ir
