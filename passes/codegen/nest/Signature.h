// A kernel graph's contents as a list of numbers: equal signatures mean equal graphs, so results can be reused. Layers
// repeat, and comparing signatures is cheaper than planning.
#pragma once
#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace cleave::passes::kernel {

using Signature = std::vector<uintptr_t>;

struct SignatureHash {
  size_t operator()(const Signature &signature) const;
};

/// Numbers for ops: equal for equal names, result types and properties.
class OpKinds {
public:
  uintptr_t of(mlir::Operation *op);

private:
  std::map<std::tuple<const void *, const void *, const void *>, uintptr_t> numbers;
};

/// The signature of the graph that graphOf (FromFusion.h) builds from the same arguments. `typeOf`, `kindOf`: numbers,
/// equal for equal types of inputs, and for equal ops (see OpKinds).
Signature signatureOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                      llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar,
                      llvm::function_ref<uintptr_t(mlir::Type)> typeOf,
                      llvm::function_ref<uintptr_t(mlir::Operation *)> kindOf);
/// The same with numbers for types that hold within an MLIR context.
Signature signatureOf(llvm::ArrayRef<mlir::Value> inputs, llvm::ArrayRef<mlir::Operation *> ops,
                      llvm::ArrayRef<mlir::Value> outputs, llvm::ArrayRef<bool> scalar,
                      llvm::function_ref<uintptr_t(mlir::Operation *)> kindOf);

} // namespace cleave::passes::kernel
