// Runs the rewrites to a fixed point.
#include "passes/simplify/Simplify.h"

#include "ir/graph/Graph.h"
#include "passes/rewrite/Parallel.h"
#include "passes/rewrite/ThrowingPass.h"

#include "mlir/Rewrite/FrozenRewritePatternSet.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_SIMPLIFYPASS
#include "passes/Passes.h.inc"

namespace {

/// Gives ops created by patterns and folders the marker attributes of the op they are inserted before.
struct Marker : RewriterBase::Listener {
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    Operation *next = op->getNextNode();
    if (!next || !op->getDiscardableAttrs().empty())
      return;
    for (NamedAttribute attribute : next->getDiscardableAttrs())
      op->setDiscardableAttr(attribute.getName(), attribute.getValue());
  }
};

FrozenRewritePatternSet allPatterns(MLIRContext *context) {
  RewritePatternSet patterns(context);
  for (RegisteredOperationName op : context->getRegisteredOperations())
    if (op.getDialectNamespace() == "cleave")
      op.getCanonicalizationPatterns(patterns, context);
  addSimplifyPatterns(patterns);
  return FrozenRewritePatternSet(std::move(patterns));
}

void simplifyFunction(func::FuncOp function, const FrozenRewritePatternSet &patterns) {
  Marker marker;
  GreedyRewriteConfig config;
  config.enableConstantCSE(false).setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  config.setListener(&marker);
  bool changed = true;
  while (changed) {
    (void)applyPatternsGreedily(function, patterns, config);
    changed = shareEqualOps(function);
  }
  eraseDeadOps(function);
}

struct SimplifyPass : ThrowingPass<impl::SimplifyPassBase<SimplifyPass>> {
  void work() override { simplify(getOperation()); }
};

} // namespace

void simplify(ModuleOp module) {
  FrozenRewritePatternSet patterns = allPatterns(module.getContext());
  llvm::SmallVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isDeclaration())
      functions.push_back(function);
  forEachInParallel(functions, [&](func::FuncOp function) { simplifyFunction(function, patterns); });
}

} // namespace cleave::passes
