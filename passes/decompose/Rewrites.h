// The rewrites by subject. Each replaces one op. The emitter is positioned before the op and has its origin; the
// returned values replace the op's results, in order, with the same types.
#pragma once
#include "passes/rewrite/Emitter.h"

namespace cleave::passes {

using Values = llvm::SmallVector<mlir::Value, 3>;

// Softmax.cpp
Values decomposeSoftmax(ir::SoftmaxOp op, Emitter &e);
Values decomposeLogSoftmax(ir::LogSoftmaxOp op, Emitter &e);
Values decomposeCrossEntropy(ir::CrossEntropyOp op, Emitter &e);
Values decomposeCrossEntropyGrad(ir::CrossEntropyGradOp op, Emitter &e);
Values decomposeTopOneCorrect(ir::TopOneCorrectOp op, Emitter &e);
// Norm.cpp
Values decomposeLayerNorm(ir::LayerNormOp op, Emitter &e);
Values decomposeLayerNormGrad(ir::LayerNormGradOp op, Emitter &e);
Values decomposeBatchNorm(ir::BatchNormOp op, Emitter &e);
Values decomposeBatchNormGrad(ir::BatchNormGradOp op, Emitter &e);
// Attention.cpp
Values decomposeAttention(ir::AttentionOp op, Emitter &e);
Values decomposeAttentionGrad(ir::AttentionGradOp op, Emitter &e);

} // namespace cleave::passes
