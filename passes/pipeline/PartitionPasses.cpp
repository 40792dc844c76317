// Stage assignment, annotation and apply as passes over a module.
#include "passes/pipeline/PartitionPasses.h"

#include "ir/Phase.h"
#include "partitioner/apply/Apply.h"
#include "partitioner/stages/Layers.h"
#include "passes/pipeline/Phases.h"
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

using partitioner::Decisions;

/// A pass that reads a strategy from its options.
template <class Base> struct StrategyPass : ThrowingPass<Base> {
  using ThrowingPass<Base>::ThrowingPass;

  Decisions fromOptions() {
    Decisions strategy;
    strategy.mesh = partitioner::parseMesh(this->mesh);
    strategy.microbatches = this->microbatches;
    strategy.schedule = this->schedule;
    strategy.chunks = this->chunks;
    strategy.sequence = this->sequence;
    strategy.zero = this->zero;
    return strategy;
  }
  /// The same for a step whose ops have their stages, without the names of layers.
  Decisions staged() {
    Decisions strategy = fromOptions();
    strategy.stages.resize(static_cast<size_t>(strategy.stageCount()));
    return strategy;
  }
};

struct LibraryEpiloguesPass : ThrowingPass<impl::LibraryEpiloguesPassBase<LibraryEpiloguesPass>> {
  void work() override { getOperation()->setAttr(ir::attr::epilogues, UnitAttr::get(&getContext())); }
};

struct AssignStagesPass : StrategyPass<impl::AssignStagesPassBase<AssignStagesPass>> {
  using StrategyPass::StrategyPass;

  void work() override {
    const Decisions strategy = fromOptions();
    ir::requirePhase(getOperation(), "assign-stages", ir::Phase::Traced);
    partitioner::assignStages(getOperation(), strategy);
  }
};

struct ForwardAsTrainPass : ThrowingPass<impl::ForwardAsTrainPassBase<ForwardAsTrainPass>> {
  void work() override {
    ir::requirePhase(getOperation(), "forward-as-train", ir::Phase::Traced);
    auto forward = getOperation().lookupSymbol<func::FuncOp>("forward");
    auto eval = getOperation().lookupSymbol<func::FuncOp>("eval");
    if (eval)
      forward.erase();
    (eval ? eval : forward).setName("train");
  }
};

struct AnnotatePass : StrategyPass<impl::AnnotatePassBase<AnnotatePass>> {
  using StrategyPass::StrategyPass;

  void work() override {
    ir::requirePhase(getOperation(), "annotate", ir::Phase::Step);
    annotate(getOperation(), staged());
  }
};

struct ApplyPass : StrategyPass<impl::ApplyPassBase<ApplyPass>> {
  using StrategyPass::StrategyPass;

  void work() override {
    const Decisions strategy = staged();
    ir::requirePhase(getOperation(), "apply", ir::Phase::Step);
    checkStages(strategy);
    partitioner::LocalPrograms applied = partitioner::apply(getOperation(), annotate(getOperation(), strategy));
    getOperation()->setAttrs(applied.module.get()->getAttrDictionary());
    getOperation().getBodyRegion().takeBody(applied.module->getBodyRegion());
  }

  /// Checks the stages of the step, which are cut before differentiation, perhaps for another mesh than the one applied
  /// here.
  void checkStages(const Decisions &strategy) {
    int64_t last = 0;
    getOperation().walk([&](Operation *op) {
      if (auto stage = op->getAttrOfType<IntegerAttr>(ir::attr::stage))
        last = std::max(last, stage.getInt());
    });
    if (last >= strategy.stageCount())
      throw userError(fmt::format("apply: {}, the step has a stage {}", strategy.stagesText(), last));
  }
};

} // namespace

} // namespace cleave::passes
