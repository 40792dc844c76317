// Selects the rewrite of each composite op.
#include "passes/decompose/Decompose.h"

#include "passes/decompose/Rewrites.h"
#include "passes/rewrite/ThrowingPass.h"

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_DECOMPOSEPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether to decompose an attention op or its gradient.
template <typename Op> bool decomposes(Op op, AttentionOps what) {
  const auto type = cast<RankedTensorType>(op.getQ().getType());
  const int64_t width = type.getShape().back();
  const bool kernel =
      !type.getElementType().isF32() && width <= 128 && width % 8 == 0 && !op.getBias() && !op.getKeep();
  return what == AttentionOps::Decompose || (what == AttentionOps::KeepHalf && !kernel) ||
         (what == AttentionOps::KeepWide && type.getElementType().isF16());
}

/// The values that replace the op's results; empty if the op stays.
Values rewrite(Operation *op, GraphBuilder &e, AttentionOps attention) {
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case([&](ir::SoftmaxOp op) { return decomposeSoftmax(op, e); })
      .Case([&](ir::LogSoftmaxOp op) { return decomposeLogSoftmax(op, e); })
      .Case([&](ir::CrossEntropyOp op) { return decomposeCrossEntropy(op, e); })
      .Case([&](ir::CrossEntropyGradOp op) { return decomposeCrossEntropyGrad(op, e); })
      .Case([&](ir::TopCorrectOp op) { return decomposeTopCorrect(op, e); })
      .Case([&](ir::LayerNormOp op) { return decomposeLayerNorm(op, e); })
      .Case([&](ir::LayerNormGradOp op) { return decomposeLayerNormGrad(op, e); })
      .Case([&](ir::BatchNormOp op) { return decomposeBatchNorm(op, e); })
      .Case([&](ir::BatchNormGradOp op) { return decomposeBatchNormGrad(op, e); })
      .Case([&](ir::DetachOp op) { return Values{op.getInput()}; })
      .Case([&](ir::AttentionOp op) { return decomposes(op, attention) ? decomposeAttention(op, e) : Values(); })
      .Case(
          [&](ir::AttentionGradOp op) { return decomposes(op, attention) ? decomposeAttentionGrad(op, e) : Values(); })
      .Default(Values());
}

struct DecomposePass : ThrowingPass<impl::DecomposePassBase<DecomposePass>> {
  using ThrowingPass::ThrowingPass;
  void work() override { decompose(getOperation(), attention); }
};

} // namespace

void decompose(ModuleOp module, AttentionOps attention) {
  llvm::SmallVector<Operation *> ops;
  module.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops) {
    GraphBuilder e{OpBuilder(op)};
    e.setOrigin(op);
    Values values = rewrite(op, e, attention);
    if (values.empty())
      continue;
    assert(ValueRange(values).getTypes() == op->getResultTypes() && "a rewrite keeps the result types");
    op->replaceAllUsesWith(values);
    op->erase();
  }
}

} // namespace cleave::passes
