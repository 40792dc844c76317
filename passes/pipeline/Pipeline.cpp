// The phases of the pipeline, in order. No other file knows all of them.
#include "passes/pipeline/Pipeline.h"

#include "ir/Phase.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"
#include "partitioner/annotate/MixedRows.h"
#include "partitioner/annotate/ReadProblem.h"
#include "partitioner/annotate/Zero.h"
#include "partitioner/apply/Apply.h"
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Constants.h"
#include "partitioner/search/Sites.h"
#include "partitioner/stages/Layers.h"
#include "passes/decompose/Decompose.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/export/Export.h"
#include "passes/fuse/Fuse.h"
#include "passes/fuse/KernelCostTable.h"
#include "passes/layout/Layout.h"
#include "passes/optimizer/Optimizer.h"
#include "passes/overlap/Combine.h"
#include "passes/overlap/Overlap.h"
#include "passes/pipeline/PartitionPasses.h"
#include "passes/pipeline/PhaseRunner.h"
#include "passes/pipeline/Phases.h"
#include "passes/precision/Precision.h"
#include "passes/recompute/Recompute.h"
#include "passes/rewrite/Parallel.h"
#include "passes/select/Select.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/Error.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/OptimizerFields.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <fmt/format.h>

using namespace mlir;

namespace cleave::passes {

using partitioner::Decisions;
using partitioner::SegmentId;
using partitioner::SegmentKind;

namespace {

const std::vector<std::string> phaseNames = {"trace",         "precision", "stages",    "layout",
                                             "differentiate", "optimizer", "decompose", "recompute",
                                             "annotate",      "apply",     "fuse"};

bool onGpu(const CompileOptions &options) { return options.backend == Target::Kind::Cuda; }

/// The attention that the device of the plan computes as one step.
AttentionOps keptAttention(const CompileOptions &options) {
  const Target target = targetOf(options);
  return target.gpu()                       ? AttentionOps::KeepHalf
         : target.arch >= Target::X86_64_v3 ? AttentionOps::KeepWide
                                            : AttentionOps::Decompose;
}

/// Whether a device of the cluster that the plan is made for has no fused attention.
bool keepsScores(const CompileOptions &options) {
  return options.cluster && llvm::any_of(options.cluster->cluster.devices,
                                         [](const partitioner::DeviceKind &kind) { return !attentionIsFused(kind); });
}

PrecisionPassOptions typesOf(const CompileOptions &options) {
  const Precision &precision = options.precision;
  PrecisionPassOptions types{.level = precision.level};
  if (precision.level > 0)
    types.half = precision.type;
  if (options.purpose == Purpose::Training) {
    types.lossScale = text(precision.lossScale);
    types.reduceType = precision.level > 0 ? text(precision.reduce) : "";
  }
  return types;
}

void checkBatches(const CompileOptions &options) {
  const int64_t microbatches = options.strategy.microbatches;
  if (options.purpose != Purpose::Training && options.evalBatch)
    throw Error(Status::Internal, "a plan without training has one batch");
  if (options.purpose == Purpose::Prediction && microbatches != 1)
    throw Error(Status::Internal, "a prediction is one microbatch of --batch");
  if (microbatches < 1 || options.batch % microbatches != 0)
    throw userError(
        fmt::format("microbatches: a batch of {} does not divide into {} microbatches", options.batch, microbatches));
  if (options.evalBatch % microbatches != 0)
    throw userError(fmt::format("microbatches: a batch of {} for evaluation does not divide into {} microbatches",
                                options.evalBatch, microbatches));
}

/// Whether the elements that are read as indices are those of a sample of this shape.
bool liesIn(ir::IndicesAttr indices, const std::vector<int64_t> &shape) {
  bool fits = indices.getStart().size() == shape.size() && indices.getBelow() >= INT32_MIN &&
              indices.getLeast() >= INT32_MIN && indices.getLeast() <= int64_t(1) << 31 &&
              indices.getBelow() <= int64_t(1) << 46 && std::abs(indices.getIgnored() / 2) <= int64_t(1) << 45;
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    const int64_t start = indices.getStart()[d], size = indices.getSize()[d];
    fits = start >= 0 && size >= 1 && size <= shape[d] && start <= shape[d] - size;
  }
  return fits;
}

/// The inputs must be fields of the data that the plan describes.
void checkInputs(ModuleOp module, const plan::DataT &data) {
  for (const char *name : {"forward", "eval"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name))
      for (const BlockArgument argument : function.getArguments()) {
        if (ir::argumentKind(argument) != ir::SlotKind::Input)
          continue;
        const std::string input = ir::argumentText(argument, ir::attr::name).str();
        const auto field = llvm::find_if(data.fields, [&](const auto &one) { return one->name == input; });
        if (field == data.fields.end())
          throw userError(
              fmt::format("compile: @{} reads the input \"{}\", which is no field of the data", name, input));
        if (auto list = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), ir::attr::indices))
          for (auto indices : list.getAsRange<ir::IndicesAttr>())
            if (!liesIn(indices, (*field)->shape))
              throw userError(
                  fmt::format("compile: @{} reads as indices what is no part of the data's field \"{}\"", name, input));
        const auto type = cast<RankedTensorType>(argument.getType());
        int64_t wanted = 1;
        for (const int64_t size : (*field)->shape)
          wanted *= size;
        if (type.getRank() == 0 || planned(ir::dtypeOf(type)) != (*field)->dtype ||
            type.getNumElements() != wanted * type.getDimSize(0))
          throw userError(fmt::format("compile: @{} reads the input \"{}\" with another type or shape than the data's "
                                      "field has",
                                      name, input));
      }
}

/// Converts the traced model to the step on global shapes. Returns the strategy with its stages.
Decisions toStep(ModuleOp module, const CompileOptions &options, const CompileContext &context) {
  const bool trains = options.purpose == Purpose::Training;
  const PhaseRunner phases(phaseNames, options.printAfter, !context.trial, context.stops);
  checkBatches(options);
  ir::requirePhase(module, "compile", ir::Phase::Traced);
  if (options.data)
    checkInputs(module, *options.data);
  // The model as it was traced. What the user's code trains must not depend on what is simplified later.
  if (trains)
    phases.run("trace", module, createLeaveUntrainedPass());
  else
    phases.end("trace", module);

  // The choice of types comes first: it is made on the ops that the user wrote, and gradients follow from the casts.
  // The epilogues of libraries decide later which copies of parameters are worth keeping.
  if (onGpu(options))
    phases.run("precision", module, createPrecisionPass(typesOf(options)), createLibraryEpiloguesPass());
  else
    phases.run("precision", module, createPrecisionPass(typesOf(options)));

  // Stages are cut before anything is simplified away, so that layers are those of the model; and before
  // differentiation, because gradient ops inherit their forward op's stage.
  const Decisions staged = partitioner::assignStages(module, options.strategy);
  phases.end("stages", module);

  // The layout of images comes before differentiation too: gradients then have the layout of their values.
  if (options.channelsLast)
    phases.run("layout", module, createChannelsLastPass(), createSimplifyPass());
  else
    phases.end("layout", module);

  if (trains) {
    // Ops are differentiated as the user wrote them, before they are decomposed: composite ops have their own
    // gradients, which are shorter and more exact than those of their primitives.
    phases.run("differentiate", module, createDifferentiatePass({.microbatches = staged.microbatches}),
               createSimplifyPass());

    // The update is built after the gradients, because it reads their types and parameters. It consists of graph ops,
    // so that it is split like them.
    phases.run("optimizer", module, createBuildOptimizerPass());
  }

  // Composite ops become primitives before the split, so that a reduction over a split dimension is a partial sum like
  // any other, and only primitives need sharding rules.
  const AttentionOps attention = keptAttention(options);
  if (trains)
    phases.run("decompose", module, createDecomposePass({attention}), createSimplifyPass());
  else
    phases.run("decompose", module, createForwardAsTrainPass(), createDecomposePass({attention}), createSimplifyPass());

  // Values to recompute are chosen on primitives, and after all passes that could merge the copies with their
  // originals.
  if (trains) {
    recompute(module.lookupSymbol<func::FuncOp>("train"), staged, keepsScores(options));
    phases.end("recompute", module);
  }
  return staged;
}

/// Lets evaluations read the averages of parameters, where the update makes them: they are stored like the parameters.
void readAverages(partitioner::LocalPrograms &applied) {
  const auto functionOf = [&](const std::string &name) { return applied.module->lookupSymbol<func::FuncOp>(name); };
  for (const partitioner::RankClass &rankClass : applied.classes) {
    llvm::StringSet<> averages;
    if (const auto update = rankClass.functions.find({SegmentKind::Update}); update != rankClass.functions.end())
      for (BlockArgument argument : functionOf(update->second).getArguments())
        if (ir::argumentKind(argument) == ir::SlotKind::State)
          averages.insert(ir::argumentText(argument, ir::attr::name));
    for (const auto &[segment, name] : rankClass.functions) {
      if (segment.kind != SegmentKind::EvalBegin && segment.kind != SegmentKind::Eval)
        continue;
      func::FuncOp function = functionOf(name);
      for (BlockArgument argument : function.getArguments()) {
        const std::string average = averageOf(ir::argumentText(argument, ir::attr::name));
        if (ir::argumentKind(argument) != ir::SlotKind::Parameter || !averages.contains(average))
          continue;
        Builder builder(function.getContext());
        function.setArgAttr(argument.getArgNumber(), ir::attr::kind, ir::kindAttr(builder, ir::SlotKind::State));
        function.setArgAttr(argument.getArgNumber(), ir::attr::name, builder.getStringAttr(average));
        function.removeArgAttr(argument.getArgNumber(), ir::attr::trainable);
      }
    }
  }
}

/// Which values of the inputs functions read as indices, in training and evaluation.
std::map<std::string, std::vector<ir::IndicesAttr>> indicesOf(ModuleOp step) {
  std::map<std::string, std::vector<ir::IndicesAttr>> found;
  for (const char *name : {"train", "eval"})
    if (auto function = step.lookupSymbol<func::FuncOp>(name))
      for (const BlockArgument argument : function.getArguments())
        if (auto list = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), ir::attr::indices))
          for (auto indices : list.getAsRange<ir::IndicesAttr>()) {
            auto &of = found[ir::argumentText(argument, ir::attr::name).str()];
            if (!llvm::is_contained(of, indices))
              of.push_back(indices);
          }
  return found;
}

/// Turns the applied forward pass into an evaluation, and removes training.
void forwardAsEval(partitioner::LocalPrograms &applied) {
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
  for (partitioner::LocalPrograms::Message &message : applied.messages)
    message.sender.kind = message.receiver.kind = SegmentKind::Eval;
  for (std::vector<partitioner::ScheduleItem> &items : applied.train)
    items.clear();
  applied.evalMixes = std::exchange(applied.trainMixes, "");
}

/// Converts the step, which is consumed, to the local programs. `staged`: the strategy with its stages.
partitioner::LocalPrograms split(OwningOpRef<ModuleOp> step, const Decisions &staged, const CompileOptions &options,
                                 const CompileContext &context) {
  const PhaseRunner phases(phaseNames, options.printAfter, !context.trial, context.stops);
  const auto mixing = [&](StringRef name, bool exceptMeant) {
    auto function = step->lookupSymbol<func::FuncOp>(name);
    Operation *op = function ? partitioner::opThatMixesRows(function, exceptMeant) : nullptr;
    return op ? locationOf(op->getLoc()) : std::string();
  };
  const bool trains = step->lookupSymbol("update") != nullptr;
  std::string train = mixing("train", trains), eval = mixing("eval", false);
  auto indices = indicesOf(*step);

  const partitioner::Decisions decisions = annotate(*step, staged);
  phases.end("annotate", *step);

  // Apply needs the sharding of every value. It comes before selection and fusion, which read the local shapes and do
  // not change the messages between stages.
  partitioner::LocalPrograms applied = partitioner::apply(*step, decisions);
  phases.end("apply", *applied.module);
  applied.trainMixes = std::move(train);
  applied.evalMixes = std::move(eval);
  applied.indices = std::move(indices);
  readAverages(applied);
  if (options.purpose != Purpose::Training)
    forwardAsEval(applied);
  return applied;
}

/// The functions of the same segment in all classes of a stage, for every segment.
std::map<std::pair<int64_t, std::string>, SmallVector<func::FuncOp>>
bySegment(const partitioner::LocalPrograms &applied, const std::vector<ClassFunctions> &classes) {
  std::map<std::pair<int64_t, std::string>, SmallVector<func::FuncOp>> found;
  for (const auto &[rankClass, functions] : llvm::zip_equal(applied.classes, classes))
    for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation})
      for (const NamedFunction &one : *list)
        found[{rankClass.position, one.segment.str()}].push_back(one.function);
  return found;
}

CollectiveStreams streamsOf(const CompileOptions &options, const CompileContext &context, Target target,
                            const Mesh &mesh) {
  if (!target.gpu())
    return CollectiveStreams::None;
  const bool apart =
      context.replicasApart.value_or(options.cluster && partitioner::replicasApart(mesh, options.cluster->cluster));
  return apart ? CollectiveStreams::Apart : CollectiveStreams::One;
}

/// Binds every op of the local functions to a library step or to a generated kernel. Selection comes before fusion: it
/// finds strides, biases and accumulation in the graph before fusion, which then takes all other ops. The layouts of
/// stashes are chosen first, because the functions that write and read a stash must agree; small all-reduces are
/// combined before fusion, which may then compute their operands in one kernel. Collectives are reordered last, among
/// the final ops.
void selectAndFuse(const partitioner::LocalPrograms &applied, const std::vector<ClassFunctions> &classes, Target target,
                   CollectiveStreams streams, KernelCostTable &costs, const Stops &stops) {
  SmallVector<func::FuncOp> all;
  for (const ClassFunctions &functions : classes)
    for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation}) {
      dropUnreadStashes(bare(*list));
      layOutStashes(bare(*list));
      llvm::append_range(all, bare(*list));
    }
  const auto segments = bySegment(applied, classes);
  for (const auto &[segment, functions] : segments)
    combineReductions(functions);
  forEachInParallel(all, [&](func::FuncOp function) {
    throwIfStopped(stops);
    select(function, target);
    fuse(function, {.gpu = target.gpu(), .costs = &costs});
    eraseDeadOps(function);
  });
  if (streams != CollectiveStreams::None)
    for (const auto &[segment, functions] : segments)
      gatherEarly(functions, streams);
}

} // namespace

partitioner::Decisions annotate(ModuleOp step, const Decisions &staged) {
  auto train = step.lookupSymbol<func::FuncOp>("train");
  partitioner::splitTiedGradients(train);
  partitioner::keepChangedBuffers(train);

  // Shardings are chosen on forward and backward pass at once; update and evaluation keep those of the parameters.
  partitioner::NamedShardings shardings = partitioner::annotateTrain(step, staged);

  // ZeRO changes what is stored after the choice, so that the computation is split as without it.
  const partitioner::NamedShardings stored = partitioner::storedShardings(step, staged, shardings);
  partitioner::annotateOthers(step, staged, shardings, stored);
  partitioner::useStored(step, staged, stored);

  partitioner::setTypeOfGradientSums(step, staged.mesh);
  return partitioner::decide(step, staged, shardings); // the schedule last: its search measures the annotated step
}

GraphModule step(GraphModule model, const CompileOptions &options) {
  toStep(model.module(), options, {});
  return model;
}

partitioner::ShardingProblem shardingProblem(GraphModule model, const CompileOptions &options,
                                             const CompileContext &context) {
  const Decisions staged = toStep(model.module(), options, context);
  auto train = model.module().lookupSymbol<func::FuncOp>("train");
  partitioner::splitTiedGradients(train);
  partitioner::keepChangedBuffers(train);
  return partitioner::readProblem(train, staged, {});
}

partitioner::LocalPrograms applyStrategy(GraphModule &model, const CompileOptions &options) {
  const Decisions staged = toStep(model.module(), options, {});
  return split(model.module().clone(), staged, options, {});
}

std::vector<uint8_t> lowerToPlan(partitioner::LocalPrograms &applied, const CompileOptions &options,
                                 const CompileContext &context) {
  const Target target = targetOf(options);
  std::vector<ClassFunctions> functions = functionsOf(applied);
  const auto costs = context.kernelCosts ? context.kernelCosts : std::make_shared<KernelCostTable>();
  const CollectiveStreams streams = streamsOf(options, context, target, applied.decisions.mesh);
  selectAndFuse(applied, functions, target, streams, *costs, context.stops);
  PhaseRunner(phaseNames, options.printAfter, !context.trial, context.stops).end("fuse", *applied.module);
  PlanBuilder plan(applied, options, target, streams, !context.trial); // export
  for (size_t c = 0; c < functions.size(); ++c) {
    throwIfStopped(context.stops);
    plan.addProgram(applied.classes[c], functions[c]); // steps; then place, which needs all segments of an iteration
  }
  plan.link();
  plan.addCode(); // codegen, after all programs: they share kernels, and only those that a step calls are compiled
  return plan.bytes();
}

Target targetOf(const CompileOptions &options) {
  return options.target ? *options.target : onGpu(options) ? Target(Target::Sm90) : hostTarget();
}

std::vector<uint8_t> compile(GraphModule model, const CompileOptions &options, const CompileContext &context) {
  const Decisions staged = toStep(model.module(), options, context);
  partitioner::LocalPrograms applied = split(model.release(), staged, options, context);
  return lowerToPlan(applied, options, context);
}

} // namespace cleave::passes
