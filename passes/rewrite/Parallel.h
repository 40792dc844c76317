// Independent work in parallel, on the threads of an MLIR context or on new ones.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::passes {

/// Calls work(i) once for every i of `order`, a permutation of 0 to order.size() - 1, in about this order. If calls
/// throw, rethrows the error of the smallest i after all calls have ended.
void forEachInParallel(mlir::MLIRContext *context, llvm::ArrayRef<size_t> order, llvm::function_ref<void(size_t)> work);

/// Calls work(0) to work(count - 1) at the same time, each on a thread of its own: for work in several contexts. If
/// calls throw, rethrows the error of the smallest number after all calls have ended.
void onThreads(size_t count, llvm::function_ref<void(size_t)> work);

/// Calls `change` once per function, the largest first. `change` may modify only its function and must not load
/// dialects. If calls throw, rethrows the error of the first function in the list after all calls have ended.
void forEachInParallel(llvm::ArrayRef<mlir::func::FuncOp> functions,
                       llvm::function_ref<void(mlir::func::FuncOp)> change);

} // namespace cleave::passes
