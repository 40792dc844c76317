// Processes several functions in parallel, on the threads of their context.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::passes {

/// Calls `change` once per function, the largest first. `change` may modify only its function and must not load
/// dialects. If calls throw, rethrows the error of the first function in the list after all calls have ended.
void forEachInParallel(llvm::ArrayRef<mlir::func::FuncOp> functions,
                       llvm::function_ref<void(mlir::func::FuncOp)> change);

} // namespace cleave::passes
