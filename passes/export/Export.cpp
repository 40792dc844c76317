// The export pipeline: every class's functions become a program; then tables, code, bytes.
#include "passes/export/Export.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "ir/library/Library.h"
#include "passes/export/Schedule.h"
#include "passes/export/Segment.h"
#include "passes/select/Select.h"
#include "passes/export/Streams.h"
#include "passes/fuse/Fuse.h"
#include "passes/rewrite/Parallel.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Kernels.h"
#include "runtime/plan/PlanFile.h"

#include "mlir/IR/SymbolTable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace mlir;

namespace cleave::passes {

namespace {

/// A class's functions in the order of a schedule, each once.
struct NamedFunction {
  std::string segment;
  func::FuncOp function;
};

std::vector<NamedFunction> functionsOf(const partitioner::Applied &applied, const partitioner::RankClass &rankClass,
                                       const std::vector<partitioner::ScheduleItem> &items) {
  std::vector<NamedFunction> list;
  std::set<std::string> seen;
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

SmallVector<func::FuncOp> bare(const std::vector<NamedFunction> &list) {
  SmallVector<func::FuncOp> functions;
  for (NamedFunction entry : list)
    functions.push_back(entry.function);
  return functions;
}

/// oneDNN 2.6 on x86-64 computes in bf16 from AVX-512 on, never in fp16; NVIDIA's libraries in all.
bool libraryHas(Type type, const std::string &target) {
  return isGpuTarget(target) || (!type.isF16() && (!type.isBF16() || target == "x86-64-v4"));
}

/// What the ranks of a class run.
struct ClassFunctions {
  std::vector<NamedFunction> training, evaluation;
};

/// Items of a stage's schedule; none where it has no such schedule.
const std::vector<partitioner::ScheduleItem> &
itemsOf(const std::vector<std::vector<partitioner::ScheduleItem>> &schedules, int64_t stage) {
  static const std::vector<partitioner::ScheduleItem> none;
  return static_cast<size_t>(stage) < schedules.size() ? schedules[static_cast<size_t>(stage)] : none;
}

/// From local ops to library calls and fusions, in every function.
std::vector<ClassFunctions> lower(const partitioner::Applied &applied, const std::string &target) {
  std::vector<ClassFunctions> classes;
  SmallVector<func::FuncOp> all;
  applied.module.get().getContext()->loadDialect<library::LibraryDialect>(); // threads may not
  for (const partitioner::RankClass &rankClass : applied.classes) {
    ClassFunctions &functions = classes.emplace_back();
    functions.training = functionsOf(applied, rankClass, itemsOf(applied.train, rankClass.stage));
    functions.evaluation = functionsOf(applied, rankClass, itemsOf(applied.eval, rankClass.stage));
    for (const std::vector<NamedFunction> *list : {&functions.training, &functions.evaluation}) {
      layOutStashes(bare(*list));
      llvm::append_range(all, bare(*list));
    }
  }
  forEachInParallel(all, [&](func::FuncOp function) {
    widenLibraryOps(function, [&](Type type) { return libraryHas(type, target); });
    joinPads(function);
    selectLibraryCalls(function, {.epilogues = isGpuTarget(target), .widen = isGpuTarget(target)});
    fuse(function, {.gpu = isGpuTarget(target)});
    removeUnused(function);
  });
  return classes;
}

/// Arguments first: they say more of a named tensor than the results that are written to it.
void registerArguments(ProgramBuilder &builder, const std::vector<NamedFunction> &list) {
  for (NamedFunction entry : list)
    for (BlockArgument argument : entry.function.getArguments()) {
      unsigned i = argument.getArgNumber();
      std::string kind = argumentText(entry.function, i, ir::attr::kind).str();
      if (!isPersistentKind(kind) && (kind != "input" || argument.use_empty()))
        continue;
      Label label = builder.tables.label(argument.getType(), entry.function.getArgAttr(i, dist::attr::sharding),
                                         entry.function.getArgAttr(i, dist::attr::global), builder.coords);
      if (!label.known)
        throw Error(Status::Internal, "plan export: the sharding of " + kind + " \"" +
                                          argumentText(entry.function, i, ir::attr::name).str() + "\" in " +
                                          entry.function.getName().str() + " does not give its local shape");
      std::string name = argumentText(entry.function, i, ir::attr::name).str();
      builder.describe(builder.namedSlot(kind, name, argument.getType(), label), entry.function, i);
    }
}

void addSegments(ProgramBuilder &builder, const std::vector<NamedFunction> &list) {
  builder.beginPass();
  SmallVector<func::FuncOp> functions = bare(list);
  for (size_t i = 0; i < list.size(); ++i)
    builder.addSegment(list[i].function, list[i].segment, ArrayRef<func::FuncOp>(functions).drop_front(i + 1));
}

void exportClass(const partitioner::Applied &applied, const partitioner::RankClass &rankClass,
                 const ClassFunctions &functions, Tables &tables, KernelBuilder &kernels, bool batches) {
  ProgramBuilder builder(tables, kernels, rankClass, batches);
  registerArguments(builder, functions.training);
  registerArguments(builder, functions.evaluation);
  addSegments(builder, functions.training);
  addSegments(builder, functions.evaluation);
  scheduleProgram(builder, itemsOf(applied.train, rankClass.stage), itemsOf(applied.eval, rankClass.stage));
  auto index = static_cast<uint32_t>(tables.plan.programs.size());
  for (int64_t rank : rankClass.ranks)
    tables.plan.ranks[static_cast<size_t>(rank)] = builder.rank(index, tables.mesh.coords(rank));
  tables.plan.programs.push_back(std::move(builder.program));
}

void describeRun(plan::PlanT &plan, const partitioner::Applied &applied, const CompileOptions &options,
                 const std::string &target) {
  plan.compiler = "cleave 0.1.0";
  plan.backend = options.backend;
  plan.target = target;
  plan.threads = static_cast<uint32_t>(std::max(1, options.threads));
  plan.model = options.model;
  plan.options = options.modelOptions;
  plan.schedule = applied.strategy.schedule;
  plan.microbatches = static_cast<uint32_t>(applied.strategy.microbatches);
  plan.batch = static_cast<uint32_t>(options.batch);
  plan.seed = options.seed;
  plan.strategy = applied.strategy.toToml();
  plan.data = options.data;
  plan.training = options.training;
  for (const MeshAxis &axis : applied.strategy.mesh.axes) {
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

/// Kernels that only batches call are not needed in their usual form.
void dropUnusedKernels(plan::PlanT &plan, KernelBuilder &kernels) {
  std::vector<bool> used(kernels.kernels().size(), false);
  forEachCall(plan, [&](plan::KernelT &call) { used[call.kernel] = true; });
  std::vector<uint32_t> place(used.size());
  for (uint32_t k = 0, kept = 0; k < used.size(); ++k)
    place[k] = used[k] ? kept++ : 0;
  forEachCall(plan, [&](plan::KernelT &call) { call.kernel = place[call.kernel]; });
  kernels.keep(used);
}

/// Binds the code to the declarations of the kernels, and the calls to those.
void bindKernels(plan::PlanT &plan) {
  plan.code_hash = codeHash(plan.code, plan.ptx);
  std::vector<uint64_t> signatures;
  for (const auto &kernel : plan.kernels)
    signatures.push_back(kernelSignature(*kernel));
  forEachCall(plan, [&](plan::KernelT &call) { call.signature = signatures[call.kernel]; });
}

void addKernels(plan::PlanT &plan, KernelBuilder &kernels, bool code) {
  if (code) {
    plan.code = kernels.link(); // first: it finds what the kernels take
    plan.ptx = kernels.ptx();
  }
  for (const KernelBuilder::Info &info : kernels.kernels()) {
    auto &made = plan.kernels.emplace_back(std::make_unique<plan::KernelInfoT>());
    made->symbol = info.symbol;
    made->source = info.source;
    made->ops = info.ops;
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

} // namespace

std::vector<uint8_t> exportPlan(partitioner::Applied &applied, const CompileOptions &options) {
  if (!applied.unequalMetric.empty())
    throw userError("plan: " + applied.unequalMetric);
  plan::PlanT plan;
  const bool cuda = options.backend == "cuda";
  std::string target = !options.target.empty() ? options.target : cuda ? "sm_90" : hostTarget();
  if (cuda != isGpuTarget(target))
    throw userError(fmt::format("--target {}: is no target of the {} backend; it has {}", target, options.backend,
                                fmt::join(cuda ? gpuTargets() : cpuTargets(), ", ")));
  describeRun(plan, applied, options, target);
  plan.ranks.resize(static_cast<size_t>(applied.strategy.mesh.ranks()));
  Tables tables(plan, applied.strategy.mesh);
  tables.string("");
  KernelBuilder kernels(target);
  const std::vector<ClassFunctions> functions = lower(applied, target);
  for (size_t c = 0; c < functions.size(); ++c)
    exportClass(applied, applied.classes[c], functions[c], tables, kernels, cuda && options.batchKernels);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    if (!plan.ranks[rank])
      throw Error(Status::Internal, "plan export: rank " + std::to_string(rank) + " belongs to no class");
  tables.linkParameters();
  dropUnusedKernels(plan, kernels);
  if (cuda)
    assignStreams(plan);
  addKernels(plan, kernels, options.code);
  flatbuffers::FlatBufferBuilder flat;
  plan::FinishPlanBuffer(flat, plan::Plan::Pack(flat, &plan));
  return sealPlan({flat.GetBufferPointer(), flat.GetSize()});
}

} // namespace cleave::passes
