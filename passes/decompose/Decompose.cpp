// Selects the rewrite of each composite op.
#include "passes/decompose/Decompose.h"

#include "passes/decompose/Rewrites.h"

using namespace mlir;

namespace cleave::passes {
namespace {

/// Whether to decompose an attention op or its gradient; `q`: its queries.
bool decomposes(Value q, AttentionOps what) {
  const auto type = cast<RankedTensorType>(q.getType());
  const int64_t width = type.getShape().back();
  const bool kernel = !type.getElementType().isF32() && width <= 128 && width % 8 == 0;
  return what == AttentionOps::Decompose || (what == AttentionOps::KeepHalf && !kernel);
}

/// The values that replace the op's results; empty if the op stays.
Values rewrite(Operation *op, Emitter &e, const DecomposeOptions &options) {
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case([&](ir::SoftmaxOp op) { return decomposeSoftmax(op, e); })
      .Case([&](ir::LogSoftmaxOp op) { return decomposeLogSoftmax(op, e); })
      .Case([&](ir::CrossEntropyOp op) { return decomposeCrossEntropy(op, e); })
      .Case([&](ir::CrossEntropyGradOp op) { return decomposeCrossEntropyGrad(op, e); })
      .Case([&](ir::TopOneCorrectOp op) { return decomposeTopOneCorrect(op, e); })
      .Case([&](ir::LayerNormOp op) { return decomposeLayerNorm(op, e); })
      .Case([&](ir::LayerNormGradOp op) { return decomposeLayerNormGrad(op, e); })
      .Case([&](ir::BatchNormOp op) { return decomposeBatchNorm(op, e); })
      .Case([&](ir::BatchNormGradOp op) { return decomposeBatchNormGrad(op, e); })
      .Case([&](ir::DetachOp op) { return Values{op.getInput()}; })
      .Case([&](ir::AttentionOp op) {
        return decomposes(op.getQ(), options.attention) ? decomposeAttention(op, e) : Values();
      })
      .Case([&](ir::AttentionGradOp op) {
        return decomposes(op.getQ(), options.attention) ? decomposeAttentionGrad(op, e) : Values();
      })
      .Default(Values());
}

struct DecomposePass : PassWrapper<DecomposePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposePass)
  DecomposePass() = default;
  DecomposePass(const DecomposePass &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "decompose"; }
  StringRef getDescription() const override { return "softmax, norms, losses and attention become primitives"; }
  void runOnOperation() override { decompose(getOperation(), {attention}); }

  Option<AttentionOps> attention{
      *this, "attention", llvm::cl::desc("what becomes of attention"),
      llvm::cl::values(clEnumValN(AttentionOps::Decompose, "decompose", "matrix products and a softmax"),
                       clEnumValN(AttentionOps::KeepHalf, "keep-half", "stays where GPUs have a kernel"),
                       clEnumValN(AttentionOps::Keep, "keep", "stays")),
      llvm::cl::init(AttentionOps::Decompose)};
};

} // namespace

void decompose(ModuleOp module, const DecomposeOptions &options) {
  llvm::SmallVector<Operation *> ops;
  module.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops) {
    Emitter e{OpBuilder(op)};
    e.setOrigin(op);
    Values values = rewrite(op, e, options);
    if (values.empty())
      continue;
    assert(ValueRange(values).getTypes() == op->getResultTypes() && "a rewrite keeps the result types");
    op->replaceAllUsesWith(values);
    op->erase();
  }
}

std::unique_ptr<Pass> createDecomposePass(const DecomposeOptions &options) {
  auto pass = std::make_unique<DecomposePass>();
  pass->attention = options.attention;
  return pass;
}

} // namespace cleave::passes
