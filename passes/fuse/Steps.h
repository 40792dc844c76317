// The steps of fusion that stand in files of their own. See Fuse.cpp.
#pragma once
#include "passes/fuse/Groups.h"

namespace cleave::passes {

/// Constant, iota, broadcast or cast to a wider float: costs nothing inside a kernel.
bool isFree(mlir::Operation *op);

/// Reductions of 64K elements and more to so few results that threads find no work are done in two steps: parts of a
/// reduced dimension, then the parts. How they are cut depends on the shapes alone: 8 to 64 parts for a CPU, for a GPU
/// as many as occupy it; there parts of 16-bit floats are f32.
void splitReductions(mlir::Block &block, bool gpu);

/// For GPUs: a variance that would read its tensor again, after the mean, reads it once.
void joinMoments(mlir::Block &block);

/// Makes the groups `cleave.fusion` ops and puts the block's ops into the groups' order.
void materialize(mlir::Block &block, Groups &groups);

} // namespace cleave::passes
