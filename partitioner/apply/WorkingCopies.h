// Working copies of parameters: in the type and layout that products need, and gathered if ZeRO stores parts. They are
// computed once per iteration and kept in a slot of kind "working" for all microbatches.
#pragma once
#include "ir/graph/Graph.h"

#include "llvm/ADT/MapVector.h"

#include <map>
#include <string>

namespace cleave::partitioner {

/// By name, the last op (in @train or @eval) of each conversion of a parameter that a class needs, in the order in
/// which they are needed.
using WorkingCopies = llvm::MapVector<std::string, mlir::Operation *, std::map<std::string, unsigned>>;

/// "fc.weight.bf16" if `op` casts a parameter to a narrower type for ops that read it from memory; "conv.weight.nhwc"
/// or "conv.weight.bf16.nhwc" if it transposes the weight of a convolution; "fc.weight.whole" or "fc.weight.bf16.whole"
/// if it gathers a parameter for the iteration; "" for any other op. Parameters read only by elementwise kernels are
/// cast there, at no cost, except biases that the library adds because the module's products have epilogues
/// (`ir::attr::epilogues`).
std::string workingCopyName(mlir::Operation *op);

} // namespace cleave::partitioner
