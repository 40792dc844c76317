// Combines small all-reduces of a local program into one message.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdint>

namespace cleave::passes {

// The pass: passes/Passes.td.
#define GEN_PASS_DECL_COMBINEREDUCTIONSPASS
#include "passes/Passes.h.inc"

/// Maximum size in bytes of a combined message, and of what is computed later because of it. The time of a message of
/// this size is mostly latency.
constexpr int64_t combinedBytes = 1 << 20;

/// Combines all-reduces of the same axes, kind and element type that do not depend on each other, while they are at most
/// `combinedBytes` together. The message is sent in the place of the last one:
///
///   a = all_reduce x         u = exp z
///   l = log a                a, b = all_reduce x, u
///   u = exp z                l = log a
///   b = all_reduce u
///
/// The sums of a loss over split classes and the gradients of small parameters are such all-reduces.
///
/// `alike`: the functions of one segment in all rank classes of a stage. Their ranks share groups, so the same
/// all-reduces are combined in all of them, or none. (With uneven shares an op may be missing in one of them.)
void combineReductions(llvm::ArrayRef<mlir::func::FuncOp> alike);

} // namespace cleave::passes
