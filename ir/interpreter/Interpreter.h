// The reference interpreter: runs any function of the graph dialect on the host with plain loops. It adds in double
// and rounds the result of every op to its element type. No MLIR in this header.
#pragma once
#include "ir/interpreter/HostTensor.h"

#include <optional>
#include <string>
#include <vector>

namespace mlir {
class Operation;
}

namespace cleave::ir {

/// The values that, together with the name of an op, determine its random numbers.
struct Context {
  uint64_t seed = 0;
  int64_t trainingStep = 1; // counted from 1
  int64_t microbatch = 0;   // element i of a random tensor with n elements has index microbatch * n + i in the step
  /// Of an evaluation or prediction: numbers are counted by sample (runtime/device/RandomRows.h) in `stream`, and row r
  /// of a batch is sample first + r mod count.
  struct Samples {
    uint64_t stream;
    int64_t first, count, rowsOfMicrobatch;
  };
  std::optional<Samples> samples = {};
};

/// Runs `function` (a func.func with one block: cleave ops, func.return, dist.reshard as identity). Throws
/// cleave::Error (internal) for an unknown op, and a user error if an input's shape or type differs from the
/// argument's.
std::vector<HostTensor> evaluate(mlir::Operation *function, const std::vector<HostTensor> &inputs,
                                 const Context &context = {});

} // namespace cleave::ir
