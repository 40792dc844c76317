// A function after fusion: its fusions are compiled and executed, all other ops run in the interpreter.
#pragma once
#include "ir/graph/Graph.h"
#include "ir/interpreter/Interpreter.h"
#include "passes/codegen/Codegen.h"
#include "tests/unit/passes/Programs.h"

#include <map>
#include <vector>

namespace cleave::testing {

/// A tensor of zeros of this type.
ir::HostTensor like(mlir::Type type);

class FusedFunction {
public:
  explicit FusedFunction(mlir::func::FuncOp function);
  mlir::func::FuncOp graph() const { return function; }
  FusedFunction(const FusedFunction &) = delete;
  ~FusedFunction();

  std::vector<ir::HostTensor> run(const std::vector<ir::HostTensor> &inputs);

  std::map<mlir::Operation *, passes::KernelCall> calls;
  size_t kernels() const { return builder.kernels().size(); }
  const passes::KernelBuilder::Info &info(mlir::Operation *fusion) {
    return builder.kernels()[calls.at(fusion).kernel];
  }

private:
  std::vector<ir::HostTensor> runKernel(mlir::Operation &op, const std::vector<ir::HostTensor> &operands);
  std::vector<ir::HostTensor> interpret(mlir::Operation &op, const std::vector<ir::HostTensor> &operands);

  mlir::func::FuncOp function;
  passes::KernelBuilder builder;
  void *library = nullptr;
};

/// `evaluate` of Programs.h with compiled kernels instead of the interpreter.
Arrays evaluate(FusedFunction &fused, const Arrays &arguments);

} // namespace cleave::testing
