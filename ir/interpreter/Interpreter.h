// The reference interpreter, the oracle: runs any function of the graph dialect on the host with plain loops. Sums are
// taken in double; every op's result is rounded to its element type. No MLIR in this header.
#pragma once
#include "ir/interpreter/HostTensor.h"

#include <string>
#include <vector>

namespace mlir {
class Operation;
}

namespace cleave::ir {

/// What random numbers depend on besides their op's name.
struct Context {
  uint64_t seed = 0;
  int64_t trainingStep = 1; // 1 for the first
  int64_t microbatch = 0;   // element i of a random tensor of n elements is element microbatch * n + i of the step's
};

/// Runs `function` (a func.func of one block: cleave ops, func.return, dist.reshard as identity). Inputs and results
/// are in the order of its arguments and results. Throws cleave::Error (internal) for an op it does not know, and a
/// user error where an input's shape or type is not the argument's.
std::vector<HostTensor> evaluate(mlir::Operation *function, const std::vector<HostTensor> &inputs,
                                 const Context &context = {});

} // namespace cleave::ir
