// The steps of fusion that are in separate files. See Fuse.cpp.
#pragma once
#include "passes/fuse/Groups.h"

namespace cleave::passes {

/// Constant, iota, broadcast or cast to a wider float: costs nothing inside a kernel.
bool isFree(mlir::Operation *op);

/// Splits reductions of 64K elements or more to few results into two steps: parts of a reduced dimension, then the sum
/// of the parts. The split depends only on the shapes: 8 to 64 parts for a CPU; on a GPU enough to occupy it. Parts of
/// 16-bit floats are f32.
void splitReductions(mlir::Block &block, bool gpu);

/// A sum of 16-bit floats used only by a cast to f32 becomes an f32 sum without a cast.
void widenSums(mlir::Block &block);

/// Computes a variance together with its mean, so that the tensor is read once.
void joinMoments(mlir::Block &block, bool gpu);

/// Moves slices out of kernels that are equal except for the slices' starts. `width`: lanes of a vector.
void peelSharedSlices(Groups &groups, int width);

/// The kernel of these ops, without the contents of tables; empty if one kernel cannot compute them.
std::optional<kernel::LoopNest> nestOf(const Groups &groups, const std::vector<mlir::Operation *> &ops, int width = 16);
/// Whether one kernel can compute these ops.
bool isKernel(const Groups &groups, const std::vector<mlir::Operation *> &ops);

/// Replaces the groups by `cleave.fusion` ops and reorders the block's ops accordingly. `width`: lanes of a vector.
void materialize(mlir::Block &block, Groups &groups, int width);

} // namespace cleave::passes
