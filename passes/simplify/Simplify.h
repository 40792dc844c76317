// Simplification between the larger phases: canonical forms, common subexpressions, dead ops.
//
// Every op that results carries an origin (cleave.path, cleave.stage, cleave.phase). Equal ops are shared across module
// paths, but never across stages or phases, and ops without operands (constants, indices) not across paths either: a
// stage is cut by paths, and a mask that every layer needs is cheaper made than sent.
#pragma once
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
class RewritePatternSet;
namespace func {
class FuncOp;
}
} // namespace mlir

namespace cleave::passes {

/// Simplifies every function of the module, to a fixed point.
void simplify(mlir::ModuleOp module);

/// The same as `--simplify`.
std::unique_ptr<mlir::Pass> createSimplifyPass();

/// The rewrites beyond the ops' own canonicalisation (Patterns.cpp).
void addSimplifyPatterns(mlir::RewritePatternSet &patterns);
/// Shares equal ops (see above); returns whether any was. One sweep in program order.
bool shareEqualOps(mlir::func::FuncOp function);
/// Erases ops whose results nobody uses.
void eraseDeadOps(mlir::func::FuncOp function);

} // namespace cleave::passes
