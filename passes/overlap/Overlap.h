// Reorders the collectives of a local program in which collectives run concurrently with other ops (GPU plans).
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace cleave::passes {

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_GATHEREARLYPASS
#include "passes/Passes.h.inc"

/// The streams in which collectives run, one after the other in each.
enum class CollectiveStreams {
  None,  ///< they do not run concurrently with other ops
  One,   ///< all in one stream
  Apart, ///< those over axis dp alone in one stream, others in another (runtime/plan/Streams.h)
};

/// Moves all-gathers to earlier places, so that they run concurrently with the ops in between. Collectives run one
/// after the other in their stream; an all-gather whose operand is already computed need not wait for the preceding
/// collective:
///
/// If that is a reduction, the gather moves in front of the op that computes the reduction's operand:
///
///   p = product              g = all_gather a
///   r = reduce_scatter p     p = product            <- concurrent with g
///   g = all_gather a         r = reduce_scatter p
///   w = product g            w = product g          <- concurrent with r
///
/// If that is another gather, the gather moves in front of the first op that reads the other gather's result:
///
///   f = all_gather a         f = all_gather a
///   x = product f            g = all_gather b
///   g = all_gather b         x = product f          <- concurrent with g
///   y = product g            y = product g
///
/// A gathered value is kept for one op longer. This is how sequence parallelism hides half of its backward collectives
/// (Korthikanti et al. 2022, section 4.2.2) and ZeRO-3 those of the next parameter (Rajbhandari et al. 2020).
///
/// `alike`: the functions of one segment in all rank classes of a stage. Their ranks share groups, so the order of
/// collectives changes in all of them in the same way, or not at all. (With uneven shares an op may be missing in one
/// of them.)
void gatherEarly(llvm::ArrayRef<mlir::func::FuncOp> alike, CollectiveStreams streams = CollectiveStreams::One);

} // namespace cleave::passes
