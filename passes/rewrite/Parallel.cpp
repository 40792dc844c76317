// Runs work in MLIR's thread pool, or on threads of its own.
#include "passes/rewrite/Parallel.h"

#include "runtime/base/Error.h"

#include "mlir/IR/Threading.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

namespace cleave::passes {

namespace {

/// Errors of work on other threads, which cannot leave them. Rethrows that of the smallest number.
class Errors {
public:
  explicit Errors(size_t count) : errors(count) {}
  void guard(size_t i, llvm::function_ref<void(size_t)> work) {
    try {
      work(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  }
  void rethrow() const {
    for (const std::exception_ptr &error : errors)
      if (error)
        std::rethrow_exception(error);
  }

private:
  std::vector<std::exception_ptr> errors;
};

} // namespace

void forEachInParallel(mlir::MLIRContext *context, llvm::ArrayRef<size_t> order,
                       llvm::function_ref<void(size_t)> work) {
  Errors errors(order.size());
  mlir::parallelForEach(context, order, [&](size_t i) { errors.guard(i, work); });
  errors.rethrow();
}

void onThreads(size_t count, llvm::function_ref<void(size_t)> work) {
  Errors errors(count);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < count; ++i)
      threads.emplace_back([&, i] { errors.guard(i, work); });
    if (count > 0)
      errors.guard(0, work);
  }
  errors.rethrow();
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
