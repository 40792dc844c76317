// Runs work in MLIR's thread pool.
#include "passes/rewrite/Parallel.h"

#include "runtime/base/Error.h"

#include "mlir/IR/Threading.h"

#include <algorithm>
#include <exception>
#include <numeric>

namespace cleave::passes {

void forEachInParallel(mlir::MLIRContext *context, llvm::ArrayRef<size_t> order,
                       llvm::function_ref<void(size_t)> work) {
  std::vector<std::exception_ptr> errors(order.size());
  mlir::parallelForEach(context, order, [&](size_t i) {
    try {
      work(i);
    } catch (...) { // LLVM's thread pool does not propagate exceptions
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr &error : errors)
    if (error)
      std::rethrow_exception(error);
}

void forEachInParallel(llvm::ArrayRef<mlir::func::FuncOp> functions,
                       llvm::function_ref<void(mlir::func::FuncOp)> change) {
  if (functions.empty())
    return;
  std::vector<size_t> sizes, order(functions.size());
  for (mlir::func::FuncOp function : functions)
    sizes.push_back(function.isDeclaration() ? 0 : function.front().getOperations().size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(sizes[b], a) < std::pair(sizes[a], b); });
  mlir::MLIRContext *context = functions.front()->getContext();
  const size_t dialects = context->getLoadedDialects().size();
  forEachInParallel(context, order, [&](size_t i) { change(functions[i]); });
  if (context->getLoadedDialects().size() != dialects)
    throw Error(Status::Internal, "a dialect was loaded while several functions were changed; load it before");
}

} // namespace cleave::passes
