// Stage assignment, annotation and apply as passes over a module.
#include "passes/pipeline/PartitionPasses.h"

#include "ir/Phase.h"
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/apply/Apply.h"
#include "partitioner/stages/Layers.h"
#include "runtime/base/Error.h"

#include "mlir/Pass/Pass.h"
#include <algorithm>
#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {
namespace {

enum class Phase { Stages, Annotate, Apply };

struct PartitionPass : PassWrapper<PartitionPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PartitionPass)
  explicit PartitionPass(Phase phase) : phase(phase) {}
  PartitionPass(const PartitionPass &other) : PassWrapper(other), phase(other.phase) {}

  Phase phase;
  Option<std::string> mesh{*this, "mesh", llvm::cl::desc("mesh shorthand"), llvm::cl::init("dp=1")};
  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("number of microbatches"), llvm::cl::init(1)};
  Option<std::string> schedule{*this, "schedule", llvm::cl::desc("gpipe or 1f1b"), llvm::cl::init("1f1b")};

  StringRef getArgument() const final {
    return phase == Phase::Stages ? "assign-stages" : phase == Phase::Annotate ? "annotate" : "apply";
  }
  StringRef getDescription() const final {
    return phase == Phase::Stages     ? "cuts a traced model into pipeline stages"
           : phase == Phase::Annotate ? "gives every value of a step its sharding"
                                      : "splits a step into local programs with explicit collectives and messages";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<dist::DistDialect, ir::CleaveDialect, func::FuncDialect>();
  }

  void runOnOperation() override {
    try {
      partitioner::Strategy strategy;
      strategy.mesh = partitioner::parseMesh(mesh);
      strategy.microbatches = microbatches;
      strategy.schedule = schedule;
      ir::requirePhase(getOperation(), getArgument().str(),
                       phase == Phase::Stages ? ir::Phase::Traced : ir::Phase::Step);
      if (phase == Phase::Apply)
        checkStages(strategy.mesh);
      if (phase == Phase::Stages)
        partitioner::assignStages(getOperation(), strategy);
      else if (phase == Phase::Annotate)
        partitioner::annotate(getOperation(), strategy);
      else
        apply(strategy);
    } catch (const Error &error) {
      getOperation().emitError(error.what());
      signalPassFailure();
    }
  }

  /// Stages are cut before differentiation, for a mesh that may be another one than is applied.
  void checkStages(const Mesh &mesh) {
    int64_t last = 0;
    getOperation().walk([&](Operation *op) {
      if (auto stage = op->getAttrOfType<IntegerAttr>(ir::attr::stage))
        last = std::max(last, stage.getInt());
    });
    if (last >= mesh.size("pp"))
      throw userError(
          fmt::format("{}: the mesh has pp = {}, the step has a stage {}", getArgument().str(), mesh.size("pp"), last));
  }

  void apply(const partitioner::Strategy &strategy) {
    OwningOpRef<ModuleOp> step(getOperation().clone());
    partitioner::Applied applied = partitioner::apply(step, strategy);
    getOperation().getBodyRegion().takeBody(applied.module->getBodyRegion());
  }
};

} // namespace

std::unique_ptr<Pass> createAssignStagesPass() { return std::make_unique<PartitionPass>(Phase::Stages); }
std::unique_ptr<Pass> createAnnotatePass() { return std::make_unique<PartitionPass>(Phase::Annotate); }
std::unique_ptr<Pass> createApplyPass() { return std::make_unique<PartitionPass>(Phase::Apply); }

} // namespace cleave::passes
