// Stage assignment, annotation and apply as passes over a module.
#include "passes/pipeline/PartitionPasses.h"

#include "ir/Phase.h"
#include "partitioner/apply/Apply.h"
#include "partitioner/stages/Layers.h"
#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_LIBRARYEPILOGUESPASS
#define GEN_PASS_DEF_ASSIGNSTAGESPASS
#define GEN_PASS_DEF_FORWARDASTRAINPASS
#define GEN_PASS_DEF_ANNOTATEPASS
#define GEN_PASS_DEF_APPLYPASS
#include "passes/Passes.h.inc"

namespace {

using partitioner::Strategy;

/// A pass that uses a strategy: the pipeline's, or one from the pass's options.
template <class Base> struct StrategyPass : ThrowingPass<Base> {
  using ThrowingPass<Base>::ThrowingPass;

  Strategy fromOptions() {
    Strategy strategy;
    strategy.mesh = partitioner::parseMesh(this->mesh);
    strategy.microbatches = this->microbatches;
    strategy.schedule = this->schedule;
    strategy.chunks = this->chunks;
    strategy.sequence = this->sequence;
    strategy.zero = this->zero;
    return strategy;
  }
};

struct LibraryEpiloguesPass : ThrowingPass<impl::LibraryEpiloguesPassBase<LibraryEpiloguesPass>> {
  void work() override { getOperation()->setAttr(ir::attr::epilogues, UnitAttr::get(&getContext())); }
};

struct AssignStagesPass : StrategyPass<impl::AssignStagesPassBase<AssignStagesPass>> {
  using StrategyPass::StrategyPass;
  explicit AssignStagesPass(Strategy &given) : given(&given) {}

  void work() override {
    Strategy own = given ? Strategy() : fromOptions();
    ir::requirePhase(getOperation(), "assign-stages", ir::Phase::Traced);
    partitioner::assignStages(getOperation(), given ? *given : own);
  }

  Strategy *given = nullptr;
};

struct ForwardAsTrainPass : ThrowingPass<impl::ForwardAsTrainPassBase<ForwardAsTrainPass>> {
  void work() override {
    ir::requirePhase(getOperation(), "forward-as-train", ir::Phase::Traced);
    getOperation().lookupSymbol<func::FuncOp>("forward").setName("train");
  }
};

struct AnnotatePass : StrategyPass<impl::AnnotatePassBase<AnnotatePass>> {
  using StrategyPass::StrategyPass;
  explicit AnnotatePass(Strategy &given) : given(&given) {}

  void work() override {
    if (given) {
      *given = partitioner::annotateStep(getOperation(), *given);
      return;
    }
    const Strategy strategy = fromOptions();
    ir::requirePhase(getOperation(), "annotate", ir::Phase::Step);
    partitioner::annotateStep(getOperation(), strategy);
  }

  Strategy *given = nullptr;
};

struct ApplyPass : StrategyPass<impl::ApplyPassBase<ApplyPass>> {
  using StrategyPass::StrategyPass;
  ApplyPass(const Strategy &given, partitioner::Applied &applied) : given(&given), applied(&applied) {}

  void work() override {
    if (given) {
      *applied = partitioner::apply(getOperation(), *given);
      return takeBody(*applied);
    }
    const Strategy strategy = fromOptions();
    ir::requirePhase(getOperation(), "apply", ir::Phase::Step);
    checkStages(strategy);
    partitioner::Applied own = partitioner::apply(getOperation(), partitioner::annotateStep(getOperation(), strategy));
    takeBody(own);
  }

  /// Checks the stages of the step, which are cut before differentiation, perhaps for another mesh than the one applied
  /// here.
  void checkStages(const Strategy &strategy) {
    int64_t last = 0;
    getOperation().walk([&](Operation *op) {
      if (auto stage = op->getAttrOfType<IntegerAttr>(ir::attr::stage))
        last = std::max(last, stage.getInt());
    });
    if (last >= strategy.stageCount())
      throw userError(fmt::format("apply: {}, the step has a stage {}", strategy.stagesText(), last));
  }

  /// Replaces the pass's module by that of the local programs.
  void takeBody(partitioner::Applied &from) {
    getOperation()->setAttrs(from.module.get()->getAttrDictionary());
    getOperation().getBodyRegion().takeBody(from.module->getBodyRegion());
    from.module = nullptr;
  }

  const Strategy *given = nullptr;
  partitioner::Applied *applied = nullptr;
};

} // namespace

std::unique_ptr<Pass> createAssignStagesPass(Strategy &strategy) {
  return std::make_unique<AssignStagesPass>(strategy);
}
std::unique_ptr<Pass> createAnnotatePass(Strategy &strategy) { return std::make_unique<AnnotatePass>(strategy); }
std::unique_ptr<Pass> createApplyPass(const Strategy &strategy, partitioner::Applied &applied) {
  return std::make_unique<ApplyPass>(strategy, applied);
}

} // namespace cleave::passes
