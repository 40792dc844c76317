// Traces a model, and reads its layers.
#include "passes/search/SearchedModel.h"

#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"
#include "partitioner/annotate/MixedRows.h"
#include "partitioner/search/FoundDecisions.h"
#include "passes/precision/Precision.h"
#include "passes/rewrite/Parallel.h"
#include "passes/search/NoneFits.h"

#include <algorithm>
#include <set>

namespace cleave::passes {

using partitioner::LayerOutline;

ReducedModel *ReducedModels::withRows(int64_t rows, size_t worker) {
  auto [found, fresh] = job.cache->workers[worker].try_emplace(rows);
  if (fresh)
    unlessRefused([&] {
      GraphModule whole = job.trace(rows, rows), kept = whole.clone();
      std::vector<LayerOutline> layers = partitioner::keepDistinctLayers(kept.module(), job.pinned);
      if (layers.empty())
        layers = partitioner::outlineOf(whole.module(), job.pinned), kept = std::move(whole);
      found->second = ReducedModel{std::move(kept), std::move(layers)};
    });
  return found->second ? &*found->second : nullptr;
}

void ReducedModels::onWorkers(size_t count, const std::function<int64_t(size_t)> &rowsOf,
                              const std::function<void(size_t, const ReducedModel *)> &work) {
  std::vector<const ReducedModel *> models;
  for (size_t i = 0; i < count; ++i)
    models.push_back(withRows(rowsOf(i), i % workers()));
  onThreads(std::min(workers(), count), [&](size_t worker) {
    for (size_t i = worker; i < count; i += workers())
      work(i, models[i]);
  });
}

int64_t ReducedModels::fewRows() {
  const int64_t few = std::min<int64_t>(job.request.batch, 2);
  return withRows(few) ? few : job.request.batch / job.asked.pins.microbatches.value_or(1);
}

namespace {

/// Whether the model combines the samples of a microbatch, also where it means to: the number of microbatches is then
/// a part of what it computes.
bool mixesRows(const SearchJob &job, const ReducedModel &model, int64_t rows) {
  CompileOptions whole = job.withBatch(rows);
  whole.evalBatch = 0;
  whole.strategy = partitioner::decisionsOf(job.asked, {.rows = rows}, 1, 1);
  const GraphModule made = step(model.model.clone(), whole);
  return partitioner::opThatMixesRows(llvm::cast<mlir::func::FuncOp>(made.function("train")), false);
}

/// Of the products of an iteration at the peaks of all devices in its precision (or fp32, if a device has no other):
/// a backward pass has twice the operations of a forward pass.
double leastSeconds(const SearchJob &job, const ReducedModel &model, int64_t rows) {
  double flops = 0, peak = 0;
  for (const LayerOutline &layer : model.layers)
    flops += 3 * layer.flops / static_cast<double>(rows);
  const partitioner::Rate rate = partitioner::rateOf(job.request.precision.type);
  for (const partitioner::Cluster::Place &place : job.cluster.places(job.asked.devices)) {
    const partitioner::DeviceKind &kind = job.cluster.devices[place.kind];
    peak += kind.peak(kind.has(rate) ? rate : partitioner::Rate::Fp32);
  }
  return peak > 0 ? flops * static_cast<double>(job.request.batch) / peak : 0;
}

} // namespace

SearchedModel readModel(const SearchJob &job, ReducedModels &models) {
  SearchedModel read{.space = {.asked = job.asked}};
  const int64_t rows = models.fewRows();
  GraphModule typed = job.trace(rows, rows);

  // What is asked: refused if it does not suit the model. Stages are decided by a file, or by the code.
  auto forward = llvm::cast<mlir::func::FuncOp>(typed.function("forward"));
  partitioner::checkRules(forward, job.pinned);
  const bool marked = !forward.getOps<ir::ShardHintOp>().empty();
  read.largestPinned = largestPinned(forward, job.pinned);
  read.begins = partitioner::pinnedBegins(typed.module(), job.pinned);
  read.space.stages =
      std::ssize(job.pinned.stages.empty() ? read.begins : std::vector<size_t>(job.pinned.stages.size()));
  read.space.oneStage = job.pinned.stages.empty();

  const ReducedModel &model = *models.withRows(rows);
  applyPrecision(typed.module(), job.request.precision.type, job.request.precision.level);
  const std::vector<LayerOutline> sent = partitioner::outlineOf(typed.module(), job.pinned);
  const bool lists = std::ranges::any_of(
      model.layers, [](const LayerOutline &layer) { return partitioner::isListMember(layer.path); });
  std::set<std::string> kept, seen;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerOutline &layer = model.layers[i];
    read.solved.push_back({layer.path, layer.kept, layer.kind});
    read.layers.push_back(
        {layer.path, layer.kept, layer.parameters, sent[i].sentBytes / static_cast<double>(rows),
         !layer.path.empty() && (!lists || partitioner::isListMember(layer.path)) && seen.insert(layer.path).second,
         layer.tiedTo, layer.tiedShare});
    if (!layer.path.empty()) {
      read.last = layer.kept;
      if (kept.insert(layer.kept).second)
        read.kept.push_back(layer.kept);
    }
  }
  read.names = partitioner::LayerNames({}, std::move(kept));
  read.space.mixesRows = mixesRows(job, model, rows);
  // What marks or rules split over axis dp, or what an op does with the rows of all ranks, depends on its size.
  read.alikeAlongData = !read.space.mixesRows && !marked && job.pinned.shard.empty() && job.pinned.ops.empty();
  read.space.layers = std::ranges::count(read.layers, true, &partitioner::SearchLayer::parameters);
  read.least = leastSeconds(job, model, rows);
  return read;
}

} // namespace cleave::passes
