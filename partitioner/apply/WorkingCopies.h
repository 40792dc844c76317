// Parameters in the type and layout in which products read them: made once an iteration from the parameter as it is
// stored, and kept in a slot of kind "working" for every microbatch.
#pragma once
#include "ir/graph/Graph.h"

#include <map>
#include <string>

namespace cleave::partitioner {

/// By name, the last of the ops (of @train or @eval) that make what a class needs from a parameter.
using WorkingCopies = std::map<std::string, mlir::Operation *>;

/// "fc.weight.bf16" where `op` casts a parameter to a narrower type for ops that read it from memory,
/// "conv.weight.nhwc" or "conv.weight.bf16.nhwc" where it turns it for a convolution; "" for any other op. What
/// elementwise kernels alone read they cast as they read, which costs nothing; but biases are added by the library where
/// the module says that its products have epilogues (`ir::attr::epilogues`).
std::string workingCopyName(mlir::Operation *op);

} // namespace cleave::partitioner
