// The steps of fusion that stand in files of their own. See Fuse.cpp.
#pragma once
#include "passes/fuse/Groups.h"

namespace cleave::passes {

/// Constant, iota, broadcast or cast to a wider float: costs nothing inside a kernel.
bool isFree(mlir::Operation *op);

/// Reductions of 64K elements and more to so few results that threads find no work are done in two steps: parts of a
/// reduced dimension, then the parts. How they are cut depends on the shapes alone: 8 to 64 parts for a CPU, for a GPU
/// as many as occupy it. Parts of 16-bit floats are f32.
void splitReductions(mlir::Block &block, bool gpu);

/// A sum of 16-bit floats that only a cast to f32 reads is made in f32, and no cast.
void widenSums(mlir::Block &block);

/// For GPUs: a variance that would read its tensor again, after the mean, reads it once.
void joinMoments(mlir::Block &block);

/// Takes slices out of kernels that would be equal but for where those begin.
void peelSharedSlices(Groups &groups);

/// Whether one kernel can compute these ops.
bool isKernel(const Groups &groups, const std::vector<mlir::Operation *> &ops);

/// Makes the groups `cleave.fusion` ops and puts the block's ops into the groups' order.
void materialize(mlir::Block &block, Groups &groups);

} // namespace cleave::passes
