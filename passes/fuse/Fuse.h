// Fusion: groups the elementwise, indexing and reducing ops of a straight-line function into `cleave.fusion` ops, each
// of which code generation compiles to one kernel. Library ops (matmul, convolution, pooling, embedding, gather, ...)
// and the dist dialect stay outside.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace cleave::passes {

struct FuseOptions {
  bool gpu = false; ///< costs and cuts of reductions are those of a GPU's threads
};

/// Rewrites `function` (one block, local or global shapes). Afterwards every op of the cleave dialect that a kernel
/// must compute lies in a `cleave.fusion`; what stays outside is
///  - library ops, composites and the dist dialect;
///  - `cleave.reshape`: the same bytes under another shape;
///  - `cleave.constant` with users outside fusions (a fill).
/// A fusion carries the location and cleave.phase of its last member, the distinct cleave.path of all members joined by
/// " + " (at most three), and dist.shardings / dist.globals of the values it returns, where all of them are known.
/// Meaning is kept exactly except for the order of additions in reductions over very many elements to very few results,
/// which are split into two steps. Ops with side effects keep their order.
void fuse(mlir::func::FuncOp function, FuseOptions options = {});

/// The same as `--fuse`, on every function of one block.
std::unique_ptr<mlir::Pass> createFusePass();

} // namespace cleave::passes
