// Applies decisions: segments, classes of equal ranks, schedules.
#include "partitioner/apply/Apply.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/ChooseSchedule.h"
#include "partitioner/apply/Emit.h"
#include "partitioner/apply/FoldRules.h"
#include "partitioner/schedule/Schedule.h"
#include "partitioner/sharding/Pinned.h"
#include "partitioner/stages/Layers.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace cleave::partitioner {

// If any tensor is split, every tensor gets a rule (`{}`: not split although it could be), so that the strategy in a
// plan is complete and reads back unchanged.
static std::vector<ShardRule> completeRules(const NamedShardings &named, const Decisions &strategy) {
  std::vector<ShardRule> rules;
  std::vector<std::string> names;
  const bool anySplit = llvm::any_of(
      named, [](auto &entry) { return llvm::any_of(entry.second.dims, [](auto &dim) { return dim.split(); }); });
  for (auto &[name, sharding] : named) {
    ShardRule rule{name, {}, "default"};
    for (const ShardRule &given : strategy.shard)
      if (matches(given.pattern, name))
        rule.origin = given.origin;
    for (size_t d = 0; d < sharding.dims.size(); ++d)
      rule.dims.merge(splitTexts(sharding.dims[d], d));
    if (anySplit || rule.origin != "default")
      rules.push_back(rule);
    names.push_back(name);
  }
  return foldRules(rules, names);
}

/// What the code asks for in the forward pass.
static std::vector<Mark> marksOf(func::FuncOp train) {
  std::vector<Mark> marks;
  train.walk([&](ir::ShardHintOp hint) {
    if (hint->hasAttr(ir::attr::phase))
      return;
    Mark &mark = marks.emplace_back(Mark{pathOf(hint), {}, {}});
    for (StringAttr axes : hint.getSharding().getAsRange<StringAttr>())
      mark.axes.push_back(axes.str());
    if (auto line = dyn_cast<FileLineColLoc>(hint.getLoc()))
      mark.where = fmt::format("{}:{}:{}", line.getFilename().str(), line.getLine(), line.getColumn());
  });
  return foldMarks(std::move(marks));
}

namespace {

// All distinct pairs (size, axes) of split factors in the functions. Ranks with equal share sizes for all of them have
// equal programs.
std::set<std::pair<int64_t, std::vector<std::string>>> splitsOf(ModuleOp module) {
  std::set<std::pair<int64_t, std::vector<std::string>>> splits;
  auto add = [&](Value value) {
    for (const DimSharding &dim : shardingOf(value).dims)
      for (const Factor &factor : dim.factors)
        if (!factor.axes.empty())
          splits.insert({factor.size, factor.axes});
  };
  module.walk([&](func::FuncOp func) {
    for (Value argument : func.getArguments())
      add(argument);
    func.walk([&](Operation *op) {
      if (op != func.getOperation())
        for (Value result : op->getResults())
          add(result);
    });
  });
  return splits;
}

std::vector<RankClass> classesOf(const Decisions &strategy, ModuleOp module) {
  auto splits = splitsOf(module);
  const Mesh &mesh = strategy.mesh;
  std::map<std::pair<int64_t, std::vector<int64_t>>, RankClass> classes; // by position and share sizes
  std::vector<std::pair<int64_t, std::vector<int64_t>>> order;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int64_t> coords = mesh.coords(rank), key;
    int64_t position = mesh.coordinate(AxisRole::Pipeline, coords);
    for (auto &[size, axes] : splits)
      key.push_back(shareSize(size, mesh.size(axes), mesh.linear(axes, coords)));
    auto [entry, added] = classes.try_emplace({position, key});
    if (added)
      order.push_back({position, key});
    entry->second.position = position;
    entry->second.ranks.push_back(rank);
  }
  std::vector<RankClass> result;
  std::map<int64_t, int64_t> count;
  for (auto &key : order) {
    classes[key].index = count[key.first]++;
    result.push_back(classes[key]);
  }
  return result;
}

std::vector<StageInfo> stagesOf(const Decisions &strategy, const StepInfo &info) {
  std::vector<StageInfo> stages(static_cast<size_t>(strategy.stageCount()));
  for (size_t s = 0; s < stages.size(); ++s)
    if (s < strategy.stages.size())
      stages[s].layers = strategy.stages[s];
  for (int64_t rank = 0; rank < strategy.mesh.ranks(); ++rank)
    for (const int64_t stage :
         strategy.stagesAt(strategy.mesh.coordinate(AxisRole::Pipeline, strategy.mesh.coords(rank))))
      stages[static_cast<size_t>(stage)].ranks.push_back(rank);
  func::FuncOp train = info.train;
  train.walk([&](Operation *op) {
    if (op != train.getOperation() && !isa<func::ReturnOp>(op))
      stages[ir::stageOf(op)].flops += flopsOf(op);
  });
  for (BlockArgument argument : train.getArguments()) {
    if (ir::argumentKind(argument) == ir::SlotKind::Parameter)
      stages[static_cast<size_t>(info.homes.at(ir::argumentText(argument, ir::attr::name).str()))].parameters +=
          cast<RankedTensorType>(argument.getType()).getNumElements();
  }
  return stages;
}

/// A rank evaluates a microbatch on all of its stages before the next one.
std::vector<ScheduleItem> evalItems(const Decisions &strategy) {
  std::vector<ScheduleItem> items{{{SegmentKind::EvalBegin}, 0}};
  for (int64_t m = 0; m < strategy.microbatches; ++m)
    for (int64_t chunk = 0; chunk < strategy.chunks; ++chunk)
      items.push_back({{SegmentKind::Eval, chunk}, m});
  items.push_back({{SegmentKind::EvalReduce}, 0});
  return items;
}

/// Inserts the segments of @weights behind the first item.
void insertWeights(const Decisions &strategy, std::vector<ScheduleItem> &items) {
  std::vector<ScheduleItem> inserted;
  for (int64_t m = 0; m < strategy.microbatches; ++m)
    for (int64_t chunk = 0; chunk < strategy.chunks; ++chunk)
      inserted.push_back({{SegmentKind::Weights, chunk}, m});
  inserted.push_back({{SegmentKind::ReduceWeights}, 0});
  items.insert(items.begin() + 1, inserted.begin(), inserted.end());
}

/// Adds the messages of a cut. `only`: the kind of all segments of the cut; if absent, the kinds that the cut records.
void addMessages(LocalPrograms &applied, const Segmentation &cut, std::optional<SegmentKind> only = std::nullopt) {
  const Decisions &strategy = applied.decisions;
  const auto chunkOf = [&](int64_t stage) { return stage / strategy.mesh.size(AxisRole::Pipeline); };
  for (const Crossing &crossing : cut.crossings) {
    const SegmentKind made = cut.place.at(crossing.value.getDefiningOp()).kind;
    applied.messages.push_back({crossing.tag,
                                strategy.positionOf(crossing.from),
                                strategy.positionOf(crossing.to),
                                {only.value_or(made), chunkOf(crossing.from)},
                                {only.value_or(crossing.receivedBy), chunkOf(crossing.to)},
                                strategy.chunks == 1 ? 0 : crossing.from * strategy.stageCount() + crossing.to});
  }
}

void declareMesh(ModuleOp module, const Mesh &mesh) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  SmallVector<StringRef> names;
  SmallVector<int64_t> sizes;
  for (const MeshAxis &axis : mesh.axes) {
    names.push_back(axis.name);
    sizes.push_back(axis.size);
  }
  dist::MeshOp::create(builder, module.getLoc(), builder.getStringAttr("mesh"), builder.getStrArrayAttr(names),
                       builder.getDenseI64ArrayAttr(sizes));
}

} // namespace

Decisions decide(ModuleOp annotated, const Decisions &strategy, const NamedShardings &named) {
  Decisions complete = strategy;
  complete.shard = completeRules(named, strategy);
  if (auto train = annotated.lookupSymbol<func::FuncOp>("train"))
    complete.marks = marksOf(train);
  const bool trains = annotated.lookupSymbol("update") != nullptr;
  if (trains && complete.scheduleIsOpen())
    chooseSchedule(annotated.lookupSymbol<func::FuncOp>("train"), complete);
  complete.complete(trains);
  return complete;
}

LocalPrograms apply(ModuleOp annotated, const Decisions &strategy) {
  LocalPrograms applied;
  applied.decisions = strategy;
  StepInfo info = describeStep(annotated, strategy);
  applied.module = OwningOpRef<ModuleOp>(ModuleOp::create(annotated.getLoc()));
  declareMesh(*applied.module, strategy.mesh);
  applied.classes = classesOf(strategy, annotated);
  for (RankClass &rankClass : applied.classes)
    emitClass(info, *applied.module, rankClass, strategy.mesh.coords(rankClass.ranks.front()));
  addMessages(applied, info.trainCut);
  addMessages(applied, info.evalCut, SegmentKind::Eval);
  applied.stages = stagesOf(strategy, info);
  applied.train.resize(static_cast<size_t>(strategy.mesh.size(AxisRole::Pipeline))); // stays empty for a prediction
  if (info.update)
    applied.train = itemsOf(strategy.work);
  for (std::vector<ScheduleItem> &items : applied.train) {
    items.insert(items.begin(), {{SegmentKind::Begin}, 0});
    if (info.weights)
      insertWeights(strategy, items);
    items.push_back({{SegmentKind::Reduce}, 0});
    items.push_back({{SegmentKind::Update}, 0});
  }
  applied.eval.assign(strategy.mesh.size(AxisRole::Pipeline), evalItems(strategy));
  return applied;
}

} // namespace cleave::partitioner
