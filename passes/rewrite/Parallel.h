// Work on several functions at once, on the threads of their context.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::passes {

/// Calls `change` once for every function, the largest first. It may change its function and nothing else of the
/// module, and loads no dialect. Of the errors that it throws, that of the first function in the list is thrown when
/// all have ended.
void forEachInParallel(llvm::ArrayRef<mlir::func::FuncOp> functions,
                       llvm::function_ref<void(mlir::func::FuncOp)> change);

} // namespace cleave::passes
