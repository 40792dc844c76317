// Fusion: groups the elementwise, indexing and reduction ops of a straight-line function into `cleave.fusion` ops, each
// of which becomes one kernel. Library ops (matmul, convolution, pooling, embedding, gather, ...) and the dist dialect
// stay outside.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace cleave::passes {

class KernelCostTable;

struct FuseOptions {
  bool gpu = false;                 ///< use the cost model and reduction splits of a GPU
  KernelCostTable *costs = nullptr; ///< shared with other functions; null: its own
};

/// Rewrites `function` (one block, local or global shapes). Afterwards every op of the cleave dialect that needs a
/// kernel is inside a `cleave.fusion`, except
///  - library ops, composites and the dist dialect;
///  - `cleave.reshape`: the same bytes under another shape;
///  - `cleave.constant` with users outside fusions (a fill).
/// A fusion has the location and cleave.phase of its last member, the distinct cleave.path of all members (at most
/// three, joined by " + "), and dist.shardings / dist.globals of its results, where unknown ones are unit. The function
/// computes the same values, except that large reductions to few results are split in two steps and add in another
/// order. Ops with side effects keep their order.
void fuse(mlir::func::FuncOp function, FuseOptions options = {});

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_FUSEPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
