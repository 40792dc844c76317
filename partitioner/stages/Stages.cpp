// Assigns layers to stages: by a strategy file, by marks in the code, or by cost.
#include "partitioner/stages/Layers.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <numeric>
#include <set>

using namespace mlir;

namespace cleave::partitioner {
namespace {

using Layers = std::vector<Layer>;
using Stages = std::vector<int64_t>; // of each layer

std::string nameOf(const Layer &layer) { return layer.path.empty() ? "ops outside any module" : layer.path; }

// A layer without a mark is in the stage of the previous layer.
Stages stagesByMarks(const Layers &layers, const Decisions &strategy) {
  Stages stages;
  int64_t current = 0;
  for (const Layer &layer : layers) {
    if (layer.mark >= 0 && layer.mark < current)
      throw userError(fmt::format("stage({}) on {} comes after stage {}: stages must not decrease", layer.mark,
                                  nameOf(layer), current));
    if (layer.mark > current + 1)
      throw userError(
          fmt::format("stage({}) on {} follows stage {}: stage {} would be empty; stages must increase by one",
                      layer.mark, nameOf(layer), current, current + 1));
    current = std::max(current, layer.mark);
    stages.push_back(current);
  }
  if (current + 1 != strategy.stageCount())
    throw userError(
        fmt::format("the model's stage(k) calls define {} stages, but {}", current + 1, strategy.stagesText()));
  return stages;
}

LayerUse useOf(const std::string &entry) {
  auto use = LayerUse::parse(entry);
  if (!use)
    throw userError(fmt::format("stages: \"{}\" is not a module path", entry));
  return *use;
}

std::string listOf(const Layers &layers) {
  std::vector<std::string> paths;
  for (const Layer &layer : layers)
    if (!layer.path.empty() && std::find(paths.begin(), paths.end(), layer.path) == paths.end())
      paths.push_back(layer.path);
  if (paths.size() > 12)
    paths.resize(12), paths.push_back("...");
  return fmt::format("{}", fmt::join(paths, ", "));
}

// Whether the module at a path has a parameter or buffer.
bool hasParameters(func::FuncOp forward, const std::string &path) {
  return llvm::any_of(forward.getArguments(), [&](BlockArgument argument) {
    return ir::argumentText(argument, ir::attr::name).starts_with(path + ".");
  });
}

using StagesByUse = std::map<LayerUse, int64_t>;

StagesByUse stagesByUse(func::FuncOp forward, const Layers &layers, const Decisions &strategy) {
  StagesByUse wanted;
  for (size_t s = 0; s < strategy.stages.size(); ++s)
    for (const std::string &entry : strategy.stages[s])
      if (!wanted.try_emplace(useOf(entry), s).second)
        throw userError(fmt::format("stages: layer \"{}\" is named twice", entry));
  for (auto &[entry, stage] : wanted) {
    const std::string &path = entry.path;
    const int64_t uses =
        std::count_if(layers.begin(), layers.end(), [&](const Layer &layer) { return layer.path == path; });
    if (!uses && !hasParameters(forward, path)) // the path may be a layer whose ops are all unused
      throw userError(fmt::format("stages: the model has no layer \"{}\"; it has {}", path, listOf(layers)));
    if (entry.use > std::max<int64_t>(uses, 1))
      throw userError(fmt::format("stages: \"{}\", but the model uses layer \"{}\" {} time{}", entry.str(), path, uses,
                                  uses == 1 ? "" : "s"));
  }
  return wanted;
}

Stages stagesAsListed(func::FuncOp forward, const Layers &layers, const Decisions &strategy) {
  const StagesByUse wanted = stagesByUse(forward, layers, strategy);
  const int64_t count = static_cast<int64_t>(strategy.stages.size());
  Stages stages;
  std::map<std::string, int64_t> uses;
  int64_t current = 0;
  for (const Layer &layer : layers) {
    if (layer.path.empty()) { // a file cannot name this layer
      current = std::max(current, std::min(layer.mark, count - 1));
      stages.push_back(current);
      continue;
    }
    const LayerUse use{layer.path, ++uses[layer.path]};
    auto found = wanted.find(use);
    if (found == wanted.end() && use.use == 1)
      throw userError(fmt::format("stages: layer \"{}\" of the model is in no stage", layer.path));
    if (found != wanted.end() && found->second < current)
      throw userError(fmt::format("stages: layer \"{}\" is in stage {}, but layers that run before it are in stage {}",
                                  use.str(), found->second, current));
    if (found != wanted.end()) // a later use (a tied head) without an entry stays in the current stage
      current = found->second;
    stages.push_back(current);
  }
  for (int64_t s = 0; s < count; ++s)
    if (std::find(stages.begin(), stages.end(), s) == stages.end())
      throw userError(fmt::format("stages: stage {} is empty in the order in which the model runs", s));
  return stages;
}

// The errors name the list's place in its file.
Stages stagesByFile(func::FuncOp forward, const Layers &layers, const Decisions &strategy) {
  try {
    return stagesAsListed(forward, layers, strategy);
  } catch (const Error &error) {
    throw Error(error.status, placed(strategy.stagesWhere) + error.what());
  }
}

// The largest cost of a stage if `costs` are cut into `parts`.
double largestStage(const std::vector<double> &costs, size_t parts) {
  double largest = 0;
  std::vector<size_t> begins = balancedCuts(costs, parts);
  begins.push_back(costs.size());
  for (size_t s = 0; s < parts; ++s)
    largest = std::max(largest, std::accumulate(costs.begin() + static_cast<long>(begins[s]),
                                                costs.begin() + static_cast<long>(begins[s + 1]), 0.0));
  return largest;
}

// The number of stages of each rank under an interleaved schedule. More stages fill the pipeline faster, but can be
// balanced less evenly. If messages take no time, ranks are equally fast and all stages take as long as the longest, an
// iteration takes (microbatches * chunks + pp - 1) times the longest stage (Narayanan et al. 2021, section 2.2).
int64_t bestChunks(const std::vector<double> &costs, const Decisions &strategy) {
  constexpr int64_t most = 8;
  const int64_t pp = strategy.mesh.size(AxisRole::Pipeline);
  int64_t best = 2;
  double shortest = std::numeric_limits<double>::infinity();
  for (int64_t chunks = 2; chunks <= most && pp * chunks <= static_cast<int64_t>(costs.size()); ++chunks) {
    const double length = largestStage(costs, static_cast<size_t>(pp * chunks)) *
                          static_cast<double>(strategy.microbatches * chunks + pp - 1);
    if (length < 0.99 * shortest) // more messages must gain at least 1 %
      shortest = length, best = chunks;
  }
  return best;
}

struct Units {
  std::vector<double> costs;
  std::vector<size_t> unitOf; // by layer
  std::vector<bool> tied;     // by layer: it has parameters and stays with the previous layer
  std::string buffer;         // for whose sake; empty if no layer is tied
};

// Collects the ops that read a value, directly or through views.
void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    readers.push_back(user);
    if (isView(user))
      collectReaders(user->getResult(0), readers);
  }
}

// Marks the layers that stay in the stage of the previous layer: between the first and the last that read a buffer or
// compute its new value. A buffer that keeps its value may be in several stages.
void keepBuffersTogether(func::FuncOp forward, const Layers &layers, Units &units) {
  DenseMap<Operation *, size_t> layerOf;
  for (size_t i = 0; i < layers.size(); ++i)
    for (Operation *op : layers[i].ops)
      layerOf[op] = i;
  units.tied.assign(layers.size(), false);
  for (OpOperand &result : forward.getBody().front().getTerminator()->getOpOperands()) {
    const StringRef name = ir::resultText(forward, result.getOperandNumber(), ir::attr::name);
    Operation *maker = result.get().getDefiningOp();
    if (ir::resultKind(forward, result.getOperandNumber()) != ir::SlotKind::Buffer || !maker)
      continue;
    SmallVector<Operation *> uses{maker};
    collectReaders(result.get(), uses); // an evaluation, which changes no buffer, reads the buffer there
    for (BlockArgument argument : forward.getArguments())
      if (ir::argumentText(argument, ir::attr::name) == name)
        collectReaders(argument, uses);
    size_t first = layers.size(), last = 0;
    for (Operation *use : uses)
      if (auto found = layerOf.find(use); found != layerOf.end())
        first = std::min(first, found->second), last = std::max(last, found->second);
    for (size_t i = first + 1; i <= last; ++i)
      if (layers[i].parameters && !units.tied[i])
        units.tied[i] = true, units.buffer = name.str();
  }
}

// Layers without parameters join the previous layer; at the start, the next one.
Units unitsOf(func::FuncOp forward, const Layers &layers) {
  Units units;
  keepBuffersTogether(forward, layers, units);
  std::vector<double> &costs = units.costs;
  bool open = false; // the current unit has no parameters yet
  for (const auto &[layer, tied] : llvm::zip_equal(layers, units.tied)) {
    if (costs.empty() || (layer.parameters && !open && !tied))
      costs.push_back(0), open = true;
    open &= !layer.parameters;
    costs.back() += layer.cost;
    units.unitOf.push_back(costs.size() - 1);
  }
  return units;
}

Stages stagesByCost(func::FuncOp forward, const Layers &layers, const Decisions &strategy) {
  const Units units = unitsOf(forward, layers);
  const std::vector<double> &costs = units.costs;
  const int64_t count = strategy.stageCount(), pp = strategy.mesh.size(AxisRole::Pipeline);
  if (count > (int64_t)costs.size())
    throw userError(
        fmt::format("mesh: pp = {} asks for more stages than the model's {} layers with parameters ({}){}",
                    count == pp ? std::to_string(pp) : fmt::format("{} with {} stages a rank", pp, strategy.chunks),
                    costs.size(), listOf(layers),
                    units.buffer.empty() ? ""
                                         : fmt::format("; those from the first to the last use of buffer \"{}\" count "
                                                       "as one, because it changes",
                                                       units.buffer)));
  std::vector<size_t> begins = balancedCuts(costs, static_cast<size_t>(count));
  Stages stages;
  for (size_t unit : units.unitOf)
    stages.push_back(std::upper_bound(begins.begin(), begins.end(), unit) - begins.begin() - 1);
  return stages;
}

// Rejects a stage that has no parameters and would only pass values on.
void checkStages(const Layers &layers, const Stages &stages, int64_t count) {
  std::vector<bool> parameters(count);
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].parameters)
      parameters[stages[i]] = true;
  for (int64_t s = 0; s < count; ++s)
    if (!parameters[s])
      throw userError(fmt::format("stages: stage {} has no parameters: no op that runs in it reads one", s));
}

bool hasLoss(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (ir::resultKind(function, i) == ir::SlotKind::Loss)
      return true;
  return false;
}

// Stages of the ops that each line of the user's code created outside any module.
using StagesByPlace = DenseMap<Location, std::set<int64_t>>;

StagesByPlace stagesByPlace(func::FuncOp forward) {
  StagesByPlace places;
  for (Operation &op : forward.getBody().front().without_terminator())
    if (pathOf(&op).empty())
      places[op.getLoc()].insert(op.getAttrOfType<IntegerAttr>(ir::attr::stage).getInt());
  return places;
}

// Limits of the stage of each op of an evaluation, whose ops may be in other layers than in training: an op that reads
// a buffer which training changes is in the stage of that change, and no op before it is in a later one.
using Limits = DenseMap<Operation *, std::pair<int64_t, int64_t>>; // earliest, latest

Limits limitsOfBuffers(func::FuncOp forward, func::FuncOp eval) {
  Limits limits;
  int64_t latest = std::numeric_limits<int64_t>::max();
  for (OpOperand &result : forward.getBody().front().getTerminator()->getOpOperands()) {
    Operation *maker = result.get().getDefiningOp();
    if (ir::resultKind(forward, result.getOperandNumber()) != ir::SlotKind::Buffer || !maker)
      continue;
    const int64_t stage = maker->getAttrOfType<IntegerAttr>(ir::attr::stage).getInt();
    SmallVector<Operation *> readers;
    for (BlockArgument argument : eval.getArguments())
      if (ir::argumentText(argument, ir::attr::name) ==
          ir::resultText(forward, result.getOperandNumber(), ir::attr::name))
        collectReaders(argument, readers);
    for (Operation *reader : readers)
      limits[reader] = {stage, stage};
  }
  for (Operation &op : llvm::reverse(eval.getBody().front().without_terminator())) {
    auto &[from, to] = limits.try_emplace(&op, 0, latest).first->second;
    to = latest = std::min(latest, to);
  }
  return limits;
}

void setStage(Operation *op, const Layer &layer, int64_t stage) {
  op->setAttr(ir::attr::stage, IntegerAttr::get(IntegerType::get(op->getContext(), 64), stage));
  if (!layer.path.empty())
    op->setAttr(ir::attr::layer, StringAttr::get(op->getContext(), layer.path));
}

} // namespace

std::set<std::string> layersNamed(const Decisions &strategy) {
  std::set<std::string> paths;
  for (const std::vector<std::string> &stage : strategy.stages)
    for (const std::string &entry : stage)
      paths.insert(useOf(entry).path);
  return paths;
}

Decisions assignStages(ModuleOp module, Decisions strategy) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward"), eval = module.lookupSymbol<func::FuncOp>("eval");
  const LayerNames names = layerNames(forward, layersNamed(strategy));
  const Layers layers = layersOf(forward, names);
  if (strategy.chunks == 0)
    strategy.chunks = bestChunks(unitsOf(forward, layers).costs, strategy);
  const int64_t count = strategy.stageCount();
  const bool marked = std::any_of(layers.begin(), layers.end(), [](const Layer &l) { return l.mark >= 0; });
  const Stages stages = !strategy.stages.empty() ? stagesByFile(forward, layers, strategy)
                        : count == 1             ? Stages(layers.size(), 0)
                        : marked                 ? stagesByMarks(layers, strategy)
                                                 : stagesByCost(forward, layers, strategy);
  if (count > 1 && hasLoss(forward)) // a prediction lacks what only the loss reads
    checkStages(layers, stages, count);
  if (strategy.stages.empty() && marked && count > 1)
    strategy.origins["stages"] = "code";
  strategy.stages.assign(count, {});
  std::map<std::pair<std::string, int>, int64_t> stageOf; // by path and number of earlier uses
  std::map<std::string, int> seen;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (Operation *op : layers[i].ops)
      setStage(op, layers[i], stages[i]);
    int occurrence = seen[layers[i].path]++;
    // A later use is listed only if it begins a stage; otherwise it is in the current stage.
    const bool begins = stages[i] > (i ? stages[i - 1] : 0);
    if ((occurrence == 0 || begins) && !layers[i].path.empty())
      strategy.stages[stages[i]].push_back(LayerUse{layers[i].path, occurrence + 1}.str());
    stageOf[{layers[i].path, occurrence}] = stages[i];
  }
  if (count > 1)
    rematerialiseInStagesOfUsers(forward);
  if (!eval)
    return strategy;
  int64_t current = 0;
  seen.clear();
  const StagesByPlace places = stagesByPlace(forward);
  const Limits limits = limitsOfBuffers(forward, eval);
  for (const Layer &layer : layersOf(eval, names)) {
    auto found = stageOf.find({layer.path, seen[layer.path]++});
    const int64_t stage = found == stageOf.end() ? current : std::max(current, found->second);
    for (Operation *op : layer.ops) {
      // Ops outside modules go to the stage of the same source line in training, whatever layer precedes them here.
      auto at = names.of(pathOf(op)).empty() ? places.find(op->getLoc()) : places.end();
      if (at != places.end())
        if (auto later = at->second.lower_bound(current); later != at->second.end())
          current = *later;
      if (at == places.end())
        current = std::max(current, stage);
      const auto [earliest, latest] = limits.at(op);
      current = std::min(std::max(current, earliest), latest);
      setStage(op, layer, current);
    }
  }
  if (count > 1)
    rematerialiseInStagesOfUsers(eval);
  return strategy;
}

} // namespace cleave::partitioner
