// Converts every class's functions to a program; then writes tables, code and bytes.
#include "passes/export/Export.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/stages/Layers.h"
#include "passes/export/Actions.h"
#include "passes/export/Segment.h"
#include "passes/export/Streams.h"
#include "passes/rewrite/Parallel.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Kernels.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/steps/Windows.h"

#include "mlir/IR/SymbolTable.h"

#include <fmt/format.h>
#include <limits>
#include <numeric>

using namespace mlir;

namespace cleave::passes {

namespace {

std::vector<NamedFunction> functionsOf(const partitioner::LocalPrograms &applied,
                                       const partitioner::RankClass &rankClass,
                                       const std::vector<partitioner::ScheduleItem> &items) {
  std::vector<NamedFunction> list;
  std::set<partitioner::SegmentId> seen;
  for (const auto &item : items) {
    auto found = rankClass.functions.find(item.segment);
    if (found == rankClass.functions.end() || !seen.insert(item.segment).second)
      continue;
    auto function = applied.module.get().lookupSymbol<func::FuncOp>(found->second);
    if (!function)
      throw Error(Status::Internal, "plan export: no function \"" + found->second + "\"");
    list.push_back({item.segment, function});
  }
  return list;
}

/// The schedule of a position; empty if it has none.
const std::vector<partitioner::ScheduleItem> &
itemsOf(const std::vector<std::vector<partitioner::ScheduleItem>> &schedules, int64_t position) {
  static const std::vector<partitioner::ScheduleItem> none;
  return static_cast<size_t>(position) < schedules.size() ? schedules[static_cast<size_t>(position)] : none;
}

/// Registers arguments first: they describe a named tensor more completely than the results written to it.
void registerArguments(ProgramBuilder &builder, const std::vector<NamedFunction> &list) {
  for (NamedFunction entry : list)
    for (BlockArgument argument : entry.function.getArguments()) {
      const unsigned i = argument.getArgNumber();
      const ir::SlotKind kind = ir::argumentKind(argument);
      const std::string name = ir::argumentText(argument, ir::attr::name).str();
      if (!isPersistentKind(kind) && (kind != ir::SlotKind::Input || argument.use_empty()))
        continue;
      Label label = builder.tables.label(argument.getType(), entry.function.getArgAttr(i, dist::attr::sharding),
                                         entry.function.getArgAttr(i, dist::attr::global), builder.coords);
      if (!label.known)
        throw Error(Status::Internal, "plan export: the sharding of " + std::string(ir::text(kind)) + " \"" + name +
                                          "\" in " + entry.function.getName().str() + " does not give its local shape");
      builder.describe(builder.namedSlot(kind, name, argument.getType(), label), entry.function, i);
    }
}

void addSegments(ProgramBuilder &builder, const std::vector<NamedFunction> &list) {
  builder.beginPass();
  // Another stage of the rank may run before or after this segment, as microbatches overlap.
  for (size_t i = 0; i < list.size(); ++i) {
    SmallVector<func::FuncOp> later;
    for (size_t k = 0; k < list.size(); ++k)
      if (k > i || list[k].segment.chunk != list[i].segment.chunk)
        later.push_back(list[k].function);
    builder.addSegment(list[i].function, list[i].segment, later);
  }
}

/// Adds what the model reads as indices to the fields of the data.
void describeIndices(plan::DataT &data, const partitioner::LocalPrograms &applied) {
  for (auto &field : data.fields)
    if (const auto found = applied.indices.find(field->name); found != applied.indices.end())
      for (ir::IndicesAttr indices : found->second) {
        auto &rule = field->indices.emplace_back(std::make_unique<plan::IndexRuleT>());
        rule->reader = indices.getReader().str();
        rule->start = indices.getStart().vec();
        rule->size = indices.getSize().vec();
        rule->least = indices.getLeast();
        rule->below = indices.getBelow();
        rule->ignored = indices.getIgnored();
      }
}

void describeRun(plan::PlanT &plan, const partitioner::LocalPrograms &applied, const CompileOptions &options,
                 Target target) {
  plan.compiler = "cleave 0.1.0";
  plan.backend = text(target.kind());
  plan.target = target.text();
  plan.threads = std::max(1U, options.threads);
  plan.model = options.model;
  plan.options = options.modelOptions;
  plan.cluster = options.clusterToml();
  plan.schedule = applied.decisions.schedule;
  for (const int64_t samples : {options.batch, options.evalBatch})
    if (samples > std::numeric_limits<int32_t>::max())
      throw userError(
          fmt::format("batch: a batch has at most {} samples, found {}", std::numeric_limits<int32_t>::max(), samples));
  plan.microbatches = static_cast<uint32_t>(applied.decisions.microbatches);
  plan.batch = static_cast<uint32_t>(options.batch);
  plan.eval_batch = static_cast<uint32_t>(options.evalBatch);
  plan.seed = options.seed;
  plan.strategy = applied.decisions.toToml();
  plan.choices = std::make_unique<plan::ChoicesT>();
  plan.choices->zero = static_cast<uint32_t>(applied.decisions.zero);
  plan.choices->sequence = !applied.decisions.sequence.empty();
  plan.choices->searched = applied.decisions.scheduleOrigin == "search";
  plan.choices->channels_last = options.channelsLast;
  plan.choices->winograd = options.winograd;
  for (const partitioner::RecomputeRule &rule : applied.decisions.recompute)
    plan.choices->recompute = std::max(plan.choices->recompute, static_cast<plan::Recomputation>(rule.kind));
  if (options.search)
    plan.search = std::make_unique<plan::SearchT>(*options.search);
  if (options.data)
    plan.data = std::make_unique<plan::DataT>(*options.data);
  if (plan.data)
    describeIndices(*plan.data, applied);
  if (options.training)
    plan.training = std::make_unique<plan::TrainingT>(*options.training);
  for (const MeshAxis &axis : applied.decisions.mesh.axes) {
    auto &made = plan.mesh.emplace_back(std::make_unique<plan::MeshAxisT>());
    made->name = axis.name;
    made->size = static_cast<uint32_t>(axis.size);
  }
  for (const partitioner::StageInfo &stage : applied.stages) {
    auto &made = plan.stages.emplace_back(std::make_unique<plan::StageT>());
    made->layers = stage.layers;
    made->ranks.assign(stage.ranks.begin(), stage.ranks.end());
    made->parameters = static_cast<uint64_t>(stage.parameters);
    made->flops = stage.flops;
  }
}

template <typename Fn> void forEachCall(plan::PlanT &plan, Fn visit) {
  for (auto &program : plan.programs)
    for (auto &segment : program->segments)
      for (auto &step : segment->steps) {
        if (plan::KernelT *kernel = step->op.AsKernel())
          visit(*kernel);
        if (plan::KernelBatchT *batch = step->op.AsKernelBatch())
          for (auto &call : batch->calls)
            visit(*call);
      }
}

/// Removes kernels that are only called by batches, because those use the batch form.
void dropUnusedKernels(plan::PlanT &plan, KernelBuilder &kernels) {
  std::vector<bool> used(kernels.kernels().size(), false);
  forEachCall(plan, [&](plan::KernelT &call) { used[call.kernel] = true; });
  std::vector<uint32_t> place(used.size());
  for (uint32_t k = 0, kept = 0; k < used.size(); ++k)
    place[k] = used[k] ? kept++ : 0;
  forEachCall(plan, [&](plan::KernelT &call) { call.kernel = place[call.kernel]; });
  kernels.keep(used);
}

/// Links kernel calls to declarations, and declarations to the code.
void bindKernels(plan::PlanT &plan) {
  plan.code_hash = codeHash(plan.code, plan.ptx);
  std::vector<uint64_t> signatures;
  for (const auto &kernel : plan.kernels)
    signatures.push_back(kernelSignature(*kernel));
  forEachCall(plan, [&](plan::KernelT &call) { call.signature = signatures[call.kernel]; });
}

/// Whether Winograd's method computes this convolution. GPUs' libraries choose themselves. On CPUs, the runtime has it
/// for channels last. It is faster if most multiplications of its tiles are needed at the borders, too.
bool usesWinograd(const plan::ConvT &op, Target target, plan::WinogradUse use) {
  if (!steps::suitsWinograd(op.kh, op.kw, op.stride_h, op.stride_w, op.groups, op.dtype))
    return false;
  if (target.gpu())
    return op.kh == 3 && op.dilation_h == 1 && op.dilation_w == 1 && op.dtype == plan::DType::F32;
  const bool data = op.kind == plan::ConvKind::BackwardData;
  const int64_t h = data ? op.ih : op.oh, w = data ? op.iw : op.ow, side = 7 - op.kh;
  // A tile's pixels are `dilation` apart.
  const auto tilesOf = [&](int64_t size, int64_t dilation) {
    return std::min(size, dilation) * ((size + dilation * side - 1) / (dilation * side));
  };
  const int64_t tiles = tilesOf(h, op.dilation_h) * tilesOf(w, op.dilation_w);
  // Gradients of weights read many transformed tiles from memory. 5 x 5 windows save too little against products in
  // bf16.
  const bool gains = op.kh == 3 ? op.kind != plan::ConvKind::BackwardWeights || std::min(op.ic, op.oc) >= 64
                                : op.kind != plan::ConvKind::BackwardWeights && op.dtype == plan::DType::F32;
  return target.arch >= Target::X86_64_v3 && op.nhwc && op.ic % 16 == 0 && op.oc % 16 == 0 &&
         (use == plan::WinogradUse::Always || (gains && op.kh * op.kw * h * w >= 2 * 36 * tiles));
}

void chooseWinograd(plan::PlanT &plan, Target target, plan::WinogradUse use) {
  for (auto &program : plan.programs)
    for (auto &segment : program->segments)
      for (auto &step : segment->steps)
        if (plan::ConvT *conv = step->op.AsConv())
          conv->winograd = usesWinograd(*conv, target, use);
}

} // namespace

SmallVector<func::FuncOp> bare(ArrayRef<NamedFunction> list) {
  return llvm::to_vector(llvm::map_range(list, [](const NamedFunction &entry) { return entry.function; }));
}

std::vector<ClassFunctions> functionsOf(const partitioner::LocalPrograms &applied) {
  std::vector<ClassFunctions> classes;
  for (const partitioner::RankClass &rankClass : applied.classes)
    classes.push_back({functionsOf(applied, rankClass, itemsOf(applied.train, rankClass.position)),
                       functionsOf(applied, rankClass, itemsOf(applied.eval, rankClass.position))});
  return classes;
}

PlanBuilder::PlanBuilder(const partitioner::LocalPrograms &applied, const CompileOptions &options, Target target,
                         CollectiveStreams streams, bool packs)
    : applied(applied), options(options), target(target), streams(streams), packs(packs),
      tables(plan, applied.decisions.mesh, partitioner::layersNamed(applied.decisions)), kernels(target),
      training(applied, false), evaluation(applied, true) {
  describeRun(plan, applied, options, target);
  plan.ranks.resize(static_cast<size_t>(applied.decisions.mesh.ranks()));
  tables.string("");
  plan.train_mixes = tables.string(applied.trainMixes);
  plan.eval_mixes = tables.string(applied.evalMixes);
}

void PlanBuilder::addProgram(const partitioner::RankClass &rankClass, const ClassFunctions &functions) {
  ProgramBuilder &builder = *programs.emplace_back(
      std::make_unique<ProgramBuilder>(tables, kernels, rankClass, applied, target.gpu() && options.batchKernels));
  registerArguments(builder, functions.training);
  registerArguments(builder, functions.evaluation);
  addSegments(builder, functions.training);
  addSegments(builder, functions.evaluation);
  auto index = static_cast<uint32_t>(programs.size() - 1);
  for (int64_t rank : rankClass.ranks)
    plan.ranks[static_cast<size_t>(rank)] = builder.rank(index, tables.mesh.coords(rank));
}

void PlanBuilder::link() {
  std::vector<size_t> order(programs.size());
  std::iota(order.begin(), order.end(), 0);
  MLIRContext *context = applied.module.get().getContext();
  forEachInParallel(context, order, [&](size_t i) {
    const int64_t position = programs[i]->program->stage;
    writeActions(*programs[i], {itemsOf(applied.train, position), training},
                 {itemsOf(applied.eval, position), evaluation}, streams, packs);
  });
  for (auto &builder : programs)
    plan.programs.push_back(std::move(builder->program));
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    if (!plan.ranks[rank])
      throw Error(Status::Internal, "plan export: rank " + std::to_string(rank) + " belongs to no class");
  tables.linkParameters();
  if (options.winograd != plan::WinogradUse::Never)
    chooseWinograd(plan, target, options.winograd);
  dropUnusedKernels(plan, kernels);
  if (streams != CollectiveStreams::None)
    assignStreams(plan, streams, context);
}

void PlanBuilder::addCode() {
  if (options.code) {
    plan.code = kernels.link(); // first, because linking determines the kernels' resources
    plan.ptx = kernels.ptx();
  }
  for (const KernelBuilder::Info &info : kernels.kernels()) {
    auto &made = plan.kernels.emplace_back(std::make_unique<plan::KernelInfoT>());
    made->symbol = info.symbol;
    made->source = info.source;
    made->ops = info.ops;
    made->fused = static_cast<uint32_t>(info.fused);
    made->threads = static_cast<uint32_t>(info.threads);
    made->registers = static_cast<uint32_t>(info.registers);
    made->shared_bytes = static_cast<uint32_t>(info.sharedBytes);
    made->spill_bytes = static_cast<uint32_t>(info.spillBytes);
    made->batch = info.batch;
    for (const KernelBuilder::Info::Argument &argument : info.arguments) {
      auto &declared = made->arguments.emplace_back(std::make_unique<plan::KernelArgumentT>());
      declared->dtype = argument.dtype;
      declared->base = argument.base;
      declared->per_extent = argument.perExtent;
      declared->written = argument.written;
    }
    made->scalars = info.scalars;
    made->extent = info.extent;
    made->grain = info.grain;
  }
  bindKernels(plan);
}

std::vector<uint8_t> PlanBuilder::bytes() const { return packPlan(plan); }

} // namespace cleave::passes
