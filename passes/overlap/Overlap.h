// The order of collectives in a local program whose collectives run beside its work (GPU plans).
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace cleave::passes {

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_GATHEREARLYPASS
#include "passes/Passes.h.inc"

/// Moves all-gathers to earlier places, so that they run beside the work in between. Collectives run one after the
/// other in one stream; an all-gather whose operand is there need not wait behind the collective before it:
///
/// Behind a sum it moves in front of the op that makes what is summed:
///
///   p = product              g = all_gather a
///   r = reduce_scatter p     p = product            <- beside g
///   g = all_gather a         r = reduce_scatter p
///   w = product g            w = product g          <- beside r
///
/// Behind another gather it moves in front of the first op that reads that one's result:
///
///   f = all_gather a         f = all_gather a
///   x = product f            g = all_gather b
///   g = all_gather b         x = product f          <- beside g
///   y = product g            y = product g
///
/// A result is held for one op more. This is how sequence parallelism hides half of its backward collectives
/// (Korthikanti et al. 2022, section 4.2.2) and ZeRO-3 those of the next parameter (Rajbhandari et al. 2020).
///
/// `alike`: the functions of a segment of all classes of a stage. Their ranks share groups, so the order of collectives
/// changes in all of them in the same way, or not at all. (With uneven shares an op may be missing in one of them.)
void gatherEarly(llvm::ArrayRef<mlir::func::FuncOp> alike);

} // namespace cleave::passes
