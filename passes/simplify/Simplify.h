// Simplification between the larger phases: canonical forms, common subexpressions, dead ops.
//
// Every resulting op has an origin (cleave.path, cleave.stage, cleave.phase). Equal ops are shared across module paths,
// but never across stages or phases. Ops without operands (constants, indices) are not shared across paths either:
// stages are cut by paths, and recomputing a mask in every layer is cheaper than sending it.
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

/// Simplifies every function of the module to a fixed point.
void simplify(mlir::ModuleOp module);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_SIMPLIFYPASS
#include "passes/Passes.h.inc"

/// Rewrites in addition to the ops' own canonicalisation (Patterns.cpp).
void addSimplifyPatterns(mlir::RewritePatternSet &patterns);
/// Shares equal ops (see above) in one sweep in program order; returns whether it shared any.
bool shareEqualOps(mlir::func::FuncOp function);
/// Erases ops with unused results.
void eraseDeadOps(mlir::func::FuncOp function);

} // namespace cleave::passes
