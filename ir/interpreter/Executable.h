// A function compiled to closures over plain values. Only this compilation reads MLIR, before any thread starts.
#pragma once
#include "ir/interpreter/Interpreter.h"

#include "mlir/IR/Block.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

#include <functional>

namespace cleave::ir {

class RankPort;

/// `rank` gives access to the other ranks; null for a function on global shapes.
struct Environment {
  Context context;
  RankPort *rank = nullptr;
};

using Operands = std::vector<const HostTensor *>;
/// Computes one op. Operands and results are in the op's order.
using Kernel = std::function<std::vector<HostTensor>(const Operands &, Environment &)>;

/// The results of an op that has one.
inline std::vector<HostTensor> one(HostTensor tensor) {
  std::vector<HostTensor> results;
  results.push_back(std::move(tensor));
  return results;
}

struct Instruction {
  Kernel kernel;
  std::vector<int> operands, results; // value numbers
  std::vector<int> dead;              // values that no later instruction reads
};

struct Executable {
  int values = 0;
  std::vector<int> arguments, results; // value numbers
  std::vector<Instruction> code;
  std::vector<HostTensor> run(const Operands &inputs, Environment &environment) const;
};

/// Reads a block that ends in a terminator whose operands are the results. Throws an internal error for an unknown op.
Executable executableOf(mlir::Block &block);

/// An empty tensor with the shape and element type of `type`.
HostTensor emptyTensor(mlir::Type type);

/// Kernels by subject; each returns an empty function for an op of another subject.
Kernel elementwiseKernel(mlir::Operation *op);
Kernel indexKernel(mlir::Operation *op);
Kernel shapeKernel(mlir::Operation *op);
Kernel linearAlgebraKernel(mlir::Operation *op);
Kernel poolingKernel(mlir::Operation *op);
Kernel attentionKernel(mlir::Operation *op);
Kernel normKernel(mlir::Operation *op);
Kernel lossKernel(mlir::Operation *op);
Kernel distKernel(mlir::Operation *op);

} // namespace cleave::ir
