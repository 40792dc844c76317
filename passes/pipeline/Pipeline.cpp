// The phases of the pipeline, in order. No other file knows all of them.
#include "passes/pipeline/Pipeline.h"

#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/MixedRows.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Constants.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/export/Export.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/overlap/Overlap.h"
#include "passes/pipeline/PartitionPasses.h"
#include "passes/pipeline/PhasePipeline.h"
#include "passes/pipeline/Phases.h"
#include "passes/pipeline/ScheduleSearch.h"
#include "passes/precision/Precision.h"
#include "passes/recompute/Recompute.h"
#include "passes/rewrite/Parallel.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/select/Select.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/Error.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::passes {

using partitioner::SegmentId;
using partitioner::SegmentKind;

namespace {

/// The phase after the local programs.
constexpr const char *callsPhase = "fuse";

bool onGpu(const CompileOptions &options) { return options.backend == Target::Kind::Cuda; }

/// Whether a device of the cluster that the plan is made for has no fused attention.
bool keepsScores(const CompileOptions &options) {
  if (options.cluster.empty())
    return false;
  const auto cluster = partitioner::Cluster::parse(options.cluster, "the cluster");
  return llvm::any_of(cluster.devices, [](const partitioner::DeviceKind &kind) { return !attentionIsFused(kind); });
}

/// The phases up to the local programs, in two pipelines: the first ends with the step on global shapes, which the
/// tests and `PROGRAM check` read.
class Phases {
public:
  /// `options` must outlive this object. Throws userError if options contradict each other or name an unknown phase.
  Phases(MLIRContext *context, const CompileOptions &options, Purpose purpose = Purpose::Training)
      : options(options), strategy(options.strategy), toStep(context, options.printAfter),
        toLocal(context, options.printAfter) {
    addTypesAndStages(purpose);
    if (purpose == Purpose::Training)
      addTraining();
    addPrimitives(purpose);
    addSplit();
    checkOptions();
  }

  /// Converts the traced model to the step on global shapes.
  void buildStep(ModuleOp module) {
    ir::requirePhase(module, "compile", ir::Phase::Traced);
    toStep.run(module);
  }

  /// Converts the step, which is consumed, to the local programs.
  partitioner::Applied split(OwningOpRef<ModuleOp> step) {
    const auto mixing = [&](StringRef name, bool exceptMeant) {
      auto function = (*step).lookupSymbol<func::FuncOp>(name);
      Operation *op = function ? partitioner::opThatMixesRows(function, exceptMeant) : nullptr;
      return op ? locationOf(op->getLoc()) : std::string();
    };
    const bool trains = (*step).lookupSymbol("update") != nullptr;
    const std::string train = mixing("train", trains), eval = mixing("eval", false);
    toLocal.run(*step);
    applied.module = std::move(step);
    applied.trainMixes = train;
    applied.evalMixes = eval;
    return std::move(applied);
  }

private:
  void addTypesAndStages(Purpose purpose);
  void addTraining();
  void addPrimitives(Purpose purpose);
  void addSplit();
  void checkOptions() const;

  const CompileOptions &options;
  partitioner::Strategy strategy; // the phases fill in its stages and shardings
  partitioner::Applied applied;
  PhasePipeline toStep, toLocal;
};

void Phases::addTypesAndStages(Purpose purpose) {
  toStep.add("trace"); // the model as it was traced

  // The choice of types comes first: it is made on the ops that the user wrote, and gradients follow from the casts.
  const Precision &precision = options.precision;
  const bool training = purpose == Purpose::Training;
  PrecisionPassOptions types{.level = precision.level};
  if (precision.level > 0)
    types.half = precision.type;
  if (training) {
    types.lossScale = text(precision.lossScale);
    types.reduceType = precision.level > 0 ? text(precision.reduce) : "";
  }
  // The epilogues of libraries decide later which copies of parameters are worth keeping.
  if (onGpu(options))
    toStep.add("precision", createPrecisionPass(types), createLibraryEpiloguesPass());
  else
    toStep.add("precision", createPrecisionPass(types));

  // Stages are cut before anything is simplified away, so that layers are those of the model; and before
  // differentiation, because gradient ops inherit their forward op's stage.
  toStep.add("stages", createAssignStagesPass(strategy));

  // The layout of images comes before differentiation too: gradients then have the layout of their values.
  if (options.channelsLast)
    toStep.add("layout", createChannelsLastPass(), createSimplifyPass());
  else
    toStep.add("layout");
}

void Phases::addTraining() {
  // Ops are differentiated as the user wrote them, before they are decomposed: composite ops have their own gradients,
  // which are shorter and more exact than those of their primitives.
  toStep.add("differentiate", createDifferentiatePass({.microbatches = strategy.microbatches}), createSimplifyPass());

  // The update is built after the gradients, because it reads their types and parameters. It consists of graph ops, so
  // that it is split like them.
  toStep.add("optimizer", createBuildOptimizerPass());
}

void Phases::addPrimitives(Purpose purpose) {
  // Composite ops become primitives before the split, so that a reduction over a split dimension is a partial sum like
  // any other, and only primitives need sharding rules.
  const AttentionOps attention = onGpu(options) ? AttentionOps::KeepHalf : AttentionOps::Decompose;
  if (purpose == Purpose::Prediction)
    toStep.add("decompose", createForwardAsTrainPass(), createDecomposePass({attention}), createSimplifyPass());
  else
    toStep.add("decompose", createDecomposePass({attention}), createSimplifyPass());

  // Values to recompute are chosen on primitives, and after all passes that could merge the copies with their
  // originals.
  if (purpose == Purpose::Training)
    toStep.add("recompute", createRecomputePass(strategy, keepsScores(options)));
}

void Phases::addSplit() {
  // Shardings are chosen on the whole step, forward, backward and update at once: they share the sharding of a
  // parameter.
  toLocal.add("annotate", createAnnotatePass(strategy));

  // Apply needs the sharding of every value. It comes before selection and fusion, which read the local shapes and do
  // not change the messages between stages.
  toLocal.add("apply", createApplyPass(strategy, applied));
}

void Phases::checkOptions() const {
  std::vector<std::string> names = toStep.names();
  llvm::append_range(names, toLocal.names());
  names.push_back(callsPhase);
  for (const std::string &name : options.printAfter)
    if (!llvm::is_contained(names, name))
      throw userError(
          fmt::format("--print-ir-after: there is no phase \"{}\"; there are {}", name, fmt::join(names, ", ")));
  const int64_t microbatches = options.strategy.microbatches;
  if (microbatches < 1 || options.batch % microbatches != 0)
    throw userError(
        fmt::format("microbatches: a batch of {} does not divide into {} microbatches", options.batch, microbatches));
  if (options.evalBatch % microbatches != 0)
    throw userError(fmt::format("microbatches: a batch of {} for evaluation does not divide into {} microbatches",
                                options.evalBatch, microbatches));
}

/// The target of generated code: the requested one, or else this machine's processor, or for GPUs sm_90.
Target targetOf(const CompileOptions &options) {
  return options.target ? *options.target : onGpu(options) ? Target(Target::Sm90) : hostTarget();
}

/// Turns the applied forward pass into an evaluation, and removes training.
void forwardAsEval(partitioner::Applied &applied) {
  for (partitioner::RankClass &rankClass : applied.classes) {
    std::map<SegmentId, std::string> functions;
    for (const auto &[segment, function] : rankClass.functions)
      for (auto [kind, as] : {std::pair(SegmentKind::Begin, SegmentKind::EvalBegin),
                              {SegmentKind::Forward, SegmentKind::Eval},
                              {SegmentKind::Reduce, SegmentKind::EvalReduce}})
        if (segment.kind == kind)
          functions[{as, segment.chunk}] = function;
    rankClass.functions = std::move(functions);
  }
  for (partitioner::Applied::Message &message : applied.messages)
    message.sender.kind = message.receiver.kind = SegmentKind::Eval;
  for (std::vector<partitioner::ScheduleItem> &items : applied.train)
    items.clear();
  applied.evalMixes = std::exchange(applied.trainMixes, "");
}

/// Binds every op of the local functions to a library step or to a generated kernel. Selection comes before fusion: it
/// finds strides, biases and accumulation in the graph before fusion, which then takes all other ops. The layouts of
/// stashes are chosen first, because the functions that write and read a stash must agree. Collectives are reordered
/// last, among the final ops. (Not in Passes.td: a textual pipeline does not say which functions belong to one
/// schedule.)
struct SelectAndFusePass : ThrowingPass<PassWrapper<SelectAndFusePass, OperationPass<ModuleOp>>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SelectAndFusePass)

  /// `classes`: functions of the module; must outlive the pass.
  SelectAndFusePass(const std::vector<ClassFunctions> &classes, Target target) : classes(classes), target(target) {}
  StringRef getArgument() const override { return "select-and-fuse"; }

  void work() override {
    SmallVector<func::FuncOp> all;
    for (const ClassFunctions &functions : classes)
      for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation}) {
        dropUnreadStashes(bare(*list));
        layOutStashes(bare(*list));
        llvm::append_range(all, bare(*list));
      }
    forEachInParallel(all, [&](func::FuncOp function) {
      select(function, target);
      fuse(function, {.gpu = target.gpu()});
      eraseDeadOps(function);
    });
    if (target.gpu()) // other devices do not communicate while they compute
      for (auto &[segment, functions] : bySegment())
        gatherEarly(functions);
  }

  /// The functions of all classes by stage and segment.
  std::map<std::pair<int64_t, std::string>, SmallVector<func::FuncOp>> bySegment() const {
    std::map<std::pair<int64_t, std::string>, SmallVector<func::FuncOp>> found;
    for (const ClassFunctions &functions : classes)
      for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation})
        for (const NamedFunction &one : *list)
          found[{one.function->getAttrOfType<IntegerAttr>(dist::attr::stage).getInt(), one.segment.str()}].push_back(
              one.function);
    return found;
  }

  const std::vector<ClassFunctions> &classes;
  const Target target;
};

} // namespace

GraphModule step(GraphModule model, const CompileOptions &options, Purpose purpose) {
  Phases(&model.context(), options, purpose).buildStep(model.module());
  return model;
}

partitioner::Applied applyStrategy(GraphModule &model, const CompileOptions &options, Purpose purpose) {
  Phases phases(&model.context(), options, purpose);
  phases.buildStep(model.module());
  partitioner::Applied applied = phases.split(model.module().clone());
  if (purpose == Purpose::Prediction)
    forwardAsEval(applied);
  return applied;
}

std::vector<uint8_t> lowerToPlan(partitioner::Applied &applied, const CompileOptions &options) {
  const Target target = targetOf(options);
  std::vector<ClassFunctions> functions = functionsOf(applied);
  PhasePipeline toCalls(applied.module.get().getContext(), options.printAfter);
  toCalls.add(callsPhase, std::make_unique<SelectAndFusePass>(functions, target));
  toCalls.run(applied.module.get());
  PlanBuilder plan(applied, options, target); // export
  for (size_t c = 0; c < functions.size(); ++c)
    plan.addProgram(applied.classes[c], functions[c]); // steps; then place, which needs all segments of an iteration
  plan.link();
  plan.addCode(); // codegen, after all programs: they share kernels, and only those that a step calls are compiled
  return plan.bytes();
}

std::vector<uint8_t> compilePrediction(GraphModule model, const CompileOptions &options) {
  if (options.strategy.microbatches != 1 || options.evalBatch)
    throw Error(Status::Internal, "a prediction is one microbatch of --batch");
  partitioner::Applied applied = applyStrategy(model, options, Purpose::Prediction);
  return lowerToPlan(applied, options);
}

std::vector<uint8_t> compile(GraphModule model, const CompileOptions &given) {
  CompileOptions options = given;
  if (options.strategy.schedule == partitioner::searchedSchedule && options.strategy.order.empty() &&
      !options.cluster.empty())
    options.strategy = searchSchedule(model, given);
  Phases phases(&model.context(), options);
  phases.buildStep(model.module());
  partitioner::Applied applied = phases.split(model.release());
  return lowerToPlan(applied, options);
}

} // namespace cleave::passes
