// The rewrites by subject. Each replaces one op. The emitter is positioned before the op and has its origin; the
// returned values replace the op's results, in order, with the same types.
#pragma once
#include "passes/rewrite/Values.h"

namespace cleave::passes {

using Values = llvm::SmallVector<mlir::Value, 3>;

// Softmax.cpp
Values decomposeSoftmax(ir::SoftmaxOp op, GraphBuilder &e);
Values decomposeLogSoftmax(ir::LogSoftmaxOp op, GraphBuilder &e);
Values decomposeCrossEntropy(ir::CrossEntropyOp op, GraphBuilder &e);
Values decomposeCrossEntropyGrad(ir::CrossEntropyGradOp op, GraphBuilder &e);
Values decomposeTopCorrect(ir::TopCorrectOp op, GraphBuilder &e);
// Norm.cpp
Values decomposeLayerNorm(ir::LayerNormOp op, GraphBuilder &e);
Values decomposeLayerNormGrad(ir::LayerNormGradOp op, GraphBuilder &e);
Values decomposeBatchNorm(ir::BatchNormOp op, GraphBuilder &e);
Values decomposeBatchNormGrad(ir::BatchNormGradOp op, GraphBuilder &e);
// Attention.cpp
Values decomposeAttention(ir::AttentionOp op, GraphBuilder &e);
Values decomposeAttentionGrad(ir::AttentionGradOp op, GraphBuilder &e);
/// The gradient of the op's bias, [b, h, t, s] in f32. `grad`: of its result.
mlir::Value attentionBiasGrad(ir::AttentionOp op, mlir::Value grad, GraphBuilder &e);

} // namespace cleave::passes
