// The pipeline, in order. The one place that knows every phase.
#include "passes/pipeline/Pipeline.h"

#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/apply/Apply.h"
#include "partitioner/stages/Layers.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/export/Export.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/pipeline/Phases.h"
#include "passes/precision/LossScale.h"
#include "passes/precision/Precision.h"
#include "passes/rewrite/Parallel.h"
#include "passes/select/Select.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/Error.h"
#include "runtime/base/StandardStreams.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::passes {

const std::vector<std::string> &phaseNames() {
  static const std::vector<std::string> names{"trace",     "precision", "stages",   "layout", "differentiate",
                                              "optimizer", "decompose", "annotate", "apply", "fuse"};
  return names;
}

namespace {

/// Ends a phase: verifies the module and prints it where that was asked for.
void finish(const char *phase, ModuleOp module, const CompileOptions &options) {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    stream << diagnostic.getLocation() << ": " << diagnostic << '\n';
    return success();
  });
  if (failed(mlir::verify(module)))
    throw Error(Status::Internal, fmt::format("invalid IR after {}: {}", phase, messages));
  if (std::find(options.printAfter.begin(), options.printAfter.end(), phase) != options.printAfter.end()) {
    std::string text;
    llvm::raw_string_ostream out(text);
    out << "// ---- IR after " << phase << " ----\n";
    module.print(out);
    out << '\n';
    printOnStandardError(text);
  }
}

void checkOptions(const CompileOptions &options) {
  for (const std::string &name : options.printAfter)
    if (std::find(phaseNames().begin(), phaseNames().end(), name) == phaseNames().end())
      throw userError(
          fmt::format("--print-ir-after: there is no phase \"{}\"; there are {}", name, fmt::join(phaseNames(), ", ")));
  int64_t microbatches = options.strategy.microbatches;
  if (microbatches < 1 || options.batch % microbatches != 0)
    throw userError(
        fmt::format("microbatches: a batch of {} does not divide into {} microbatches", options.batch, microbatches));
}

/// Gradients are summed over dp in this type; without an attribute, or a difference, in their own.
void setReduceDtype(ModuleOp module, const CompileOptions &options) {
  if (options.level == 0 || options.reduceDtype.empty())
    return;
  MLIRContext *context = module.getContext();
  Type type = options.reduceDtype == "fp32"   ? Type(Float32Type::get(context))
              : options.reduceDtype == "bf16" ? Type(BFloat16Type::get(context))
                                              : Type(Float16Type::get(context));
  module->setAttr(ir::attr::reduceDtype, TypeAttr::get(type));
}

/// NVIDIA's library does biases and activations with its products; on CPUs fused kernels do.
void setEpilogues(ModuleOp module, const CompileOptions &options) {
  if (options.backend == "cuda")
    module->setAttr(ir::attr::epilogues, UnitAttr::get(module.getContext()));
}

/// Ends the choice of types; then the stage of every op, and how convolutions lie in memory.
void chooseStagesAndLayout(ModuleOp module, partitioner::Strategy &strategy, const CompileOptions &options) {
  setEpilogues(module, options);
  finish("precision", module, options);
  // Before anything is simplified away, so that layers are the model's; gradient ops inherit their forward op's stage.
  partitioner::assignStages(module, strategy);
  finish("stages", module, options);
  if (options.channelsLast) {
    useChannelsLast(module);
    simplify(module);
  }
  finish("layout", module, options);
}

/// Composite ops become primitives.
void reachPrimitives(ModuleOp module, const CompileOptions &options) {
  decompose(module, {options.backend == "cuda" ? AttentionOps::KeepHalf : AttentionOps::Decompose});
  simplify(module);
  finish("decompose", module, options);
}

/// From the traced model to the step on global shapes. The strategy, its stages completed.
partitioner::Strategy buildStep(ModuleOp module, const CompileOptions &options) {
  checkOptions(options);
  partitioner::Strategy strategy = options.strategy;
  finish("trace", module, options);
  ir::requirePhase(module, "compile", ir::Phase::Traced);
  applyPrecision(module, {options.half, options.level});
  if (options.lossScale < 0)
    LossScale{}.setOn(module);
  else if (options.lossScale > 0)
    LossScale{.initial = options.lossScale, .dynamic = false}.setOn(module);
  setReduceDtype(module, options);
  chooseStagesAndLayout(module, strategy, options);
  differentiate(module, {strategy.microbatches});
  simplify(module);
  finish("differentiate", module, options);
  buildOptimizer(module);
  finish("optimizer", module, options);
  reachPrimitives(module, options);
  return strategy;
}

/// The forward pass of a prediction on global shapes, where apply looks for a step.
void buildPrediction(ModuleOp module, partitioner::Strategy &strategy, const CompileOptions &options) {
  finish("trace", module, options);
  ir::requirePhase(module, "compile", ir::Phase::Traced);
  applyPrecision(module, {options.half, options.level});
  chooseStagesAndLayout(module, strategy, options);
  module.lookupSymbol<func::FuncOp>("forward").setName("train");
  reachPrimitives(module, options);
}

/// The applied forward pass becomes what an evaluation runs; nothing is left to train.
void forwardAsEval(partitioner::Applied &applied) {
  for (partitioner::RankClass &rankClass : applied.classes) {
    std::map<std::string, std::string> functions;
    for (auto [segment, as] : {std::pair("begin", "eval_begin"), {"forward", "eval"}, {"reduce", "eval_reduce"}})
      if (auto found = rankClass.functions.find(segment); found != rankClass.functions.end())
        functions[as] = found->second;
    rankClass.functions = std::move(functions);
  }
  const size_t stages = applied.train.size();
  applied.eval.assign(stages, {{"eval_begin", 0}, {"eval", 0}, {"eval_reduce", 0}});
  applied.train.assign(stages, {});
}

/// The code target: what was asked for, or this machine's, or the GPU that plans are made for by default.
std::string targetOf(const CompileOptions &options) {
  const bool cuda = options.backend == "cuda";
  const std::string target = !options.target.empty() ? options.target : cuda ? "sm_90" : hostTarget();
  if (cuda != isGpuTarget(target))
    throw userError(fmt::format("--target {}: is no target of the {} backend; it has {}", target, options.backend,
                                fmt::join(cuda ? gpuTargets() : cpuTargets(), ", ")));
  return target;
}

/// Binds every op of the local functions to a library step or to a generated kernel. Selection comes before fusion: it
/// reads strides, biases and accumulation off the plain graph, and fusion takes all that it leaves. What a function
/// stashes is laid out first, because the function that reads it must agree.
void selectAndFuse(const std::vector<ClassFunctions> &classes, const std::string &target) {
  SmallVector<func::FuncOp> all;
  for (const ClassFunctions &functions : classes)
    for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation}) {
      dropUnreadStashes(bare(*list));
      layOutStashes(bare(*list));
      llvm::append_range(all, bare(*list));
    }
  forEachInParallel(all, [&](func::FuncOp function) {
    select(function, target);
    fuse(function, {.gpu = isGpuTarget(target)});
    eraseDeadOps(function);
  });
}

/// Splits a step on global shapes, which is consumed, over the devices.
partitioner::Applied split(OwningOpRef<ModuleOp> step, const partitioner::Strategy &strategy,
                           const CompileOptions &options) {
  partitioner::Applied applied = partitioner::apply(step, strategy);
  finish("annotate", *step, options);
  finish("apply", *applied.module, options);
  return applied;
}

} // namespace

GraphModule step(GraphModule model, const CompileOptions &options) {
  buildStep(model.module(), options);
  return model;
}

partitioner::Applied applyStrategy(GraphModule &model, const CompileOptions &options) {
  const partitioner::Strategy strategy = buildStep(model.module(), options);
  return split(model.module().clone(), strategy, options);
}

std::vector<uint8_t> lowerToPlan(partitioner::Applied &applied, const CompileOptions &options) {
  if (!applied.unequalMetric.empty())
    throw userError("plan: " + applied.unequalMetric);
  const std::string target = targetOf(options);
  std::vector<ClassFunctions> functions = functionsOf(applied);
  selectAndFuse(functions, target);
  finish("fuse", applied.module.get(), options);
  PlanBuilder plan(applied, options, target); // export
  for (size_t c = 0; c < functions.size(); ++c)
    plan.addProgram(applied.classes[c], functions[c]); // steps; then place, which needs all segments of an iteration
  plan.link();
  plan.addCode(); // codegen, after all programs: they share kernels, and only those that a step calls are compiled
  return plan.bytes();
}

std::vector<uint8_t> compilePrediction(GraphModule model, const CompileOptions &options) {
  checkOptions(options);
  if (options.strategy.microbatches != 1)
    throw Error(Status::Internal, "a prediction is one microbatch");
  partitioner::Strategy strategy = options.strategy;
  buildPrediction(model.module(), strategy, options);
  partitioner::Applied applied = split(model.release(), strategy, options);
  forwardAsEval(applied);
  return lowerToPlan(applied, options);
}

std::vector<uint8_t> compile(GraphModule model, const CompileOptions &options) {
  const partitioner::Strategy strategy = buildStep(model.module(), options);
  partitioner::Applied applied = split(model.release(), strategy, options);
  return lowerToPlan(applied, options);
}

} // namespace cleave::passes
