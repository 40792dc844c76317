// Layers by module path; cuts by dynamic programming over their costs.
#include "partitioner/stages/Layers.h"

#include "ir/graph/Graph.h"
#include "runtime/base/Error.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

using namespace mlir;

namespace cleave::partitioner {

// FLOPs that moving one element costs as much time as, on anything with a memory: a few dozen.
static constexpr double elementCharge = 16;

std::string layerOf(const std::string &path) {
  size_t begin = 0, end = path.find('.');
  std::string layer = path.substr(0, end);
  while (end != std::string::npos) {
    begin = end + 1;
    end = path.find('.', begin);
    std::string part = path.substr(begin, end == std::string::npos ? end : end - begin);
    if (part.empty() || !std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); }))
      break;
    return path.substr(0, end);
  }
  return layer;
}

// Path of the ops that the loss function makes: they stay with the model's last layer.
static constexpr const char *lossPath = "loss";

static std::string pathOf(Operation *op) {
  auto path = op->getAttrOfType<StringAttr>(ir::attr::path);
  return path ? path.str() : "";
}

static double elements(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

double flopsOf(Operation *op) {
  auto shape = [](Value v) { return cast<RankedTensorType>(v.getType()).getShape(); };
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case([&](ir::MatmulOp o) {
        return 2 * elements(o.getResult()) *
               shape(o.getA())[o.getTransA() ? shape(o.getA()).size() - 2 : shape(o.getA()).size() - 1];
      })
      .Case([&](ir::Conv2dOp o) {
        return 2 * elements(o.getResult()) * elements(o.getWeight()) / shape(o.getWeight())[0];
      })
      .Case([&](ir::Conv2dInputGradOp o) {
        return 2 * elements(o.getGrad()) * elements(o.getWeight()) / shape(o.getWeight())[0];
      })
      .Case([&](ir::Conv2dWeightGradOp o) {
        return 2 * elements(o.getGrad()) * elements(o.getResult()) / shape(o.getResult())[0];
      })
      .Case([&](ir::AttentionOp o) { return 4 * elements(o.getQ()) * shape(o.getK())[2]; })
      .Case([&](ir::AttentionGradOp o) { return 10 * elements(o.getQ()) * shape(o.getK())[2]; })
      .Default([](Operation *) { return 0.0; });
}

std::vector<Layer> layersOf(func::FuncOp func) {
  std::vector<Layer> layers;
  std::vector<Operation *> before; // ops that no layer precedes
  for (Operation &op : func.getBody().front().without_terminator()) {
    std::string name = layerOf(pathOf(&op));
    if (name != lossPath && !name.empty() && (layers.empty() || layers.back().path != name))
      layers.push_back({name, 0, {}});
    if (layers.empty()) {
      before.push_back(&op);
      continue;
    }
    layers.back().ops.push_back(&op);
    layers.back().cost += flopsOf(&op);
    for (Value result : op.getResults())
      layers.back().cost += elementCharge * elements(result);
  }
  if (layers.empty())
    layers.push_back({"", 0, {}});
  layers.front().ops.insert(layers.front().ops.begin(), before.begin(), before.end());
  return layers;
}

std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts) {
  size_t n = costs.size();
  std::vector<double> sum(n + 1, 0);
  for (size_t i = 0; i < n; ++i)
    sum[i + 1] = sum[i] + costs[i];
  // best[p][i]: least largest run when the first i layers make p runs; from[p][i]: where the last of them begins.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p)
    for (size_t i = p; i <= n; ++i)
      for (size_t j = p - 1; j < i; ++j) {
        double worst = std::max(best[p - 1][j], sum[i] - sum[j]);
        if (worst < best[p][i]) {
          best[p][i] = worst;
          from[p][i] = j;
        }
      }
  std::vector<size_t> begins(parts);
  for (size_t p = parts, i = n; p > 0; --p)
    i = begins[p - 1] = from[p][i];
  return begins;
}

namespace {

int64_t markOf(const Layer &layer) {
  for (Operation *op : layer.ops)
    if (auto mark = op->getAttrOfType<IntegerAttr>(ir::attr::stage))
      return mark.getInt();
  return -1;
}

// Stages by the code's marks: a layer without one stays with the layer before it.
std::vector<int64_t> stagesByMarks(const std::vector<Layer> &layers, int64_t pp) {
  std::vector<int64_t> stages;
  int64_t current = 0;
  for (const Layer &layer : layers) {
    int64_t mark = markOf(layer);
    if (mark >= 0 && mark < current)
      throw userError(
          fmt::format("stage({}) on {} comes after stage {}: stages must not go back", mark, layer.path, current));
    if (mark > current + 1)
      throw userError(
          fmt::format("stage({}) on {} follows stage {}: stages must count up by one", mark, layer.path, current));
    current = std::max(current, mark);
    stages.push_back(current);
  }
  if (current + 1 != pp)
    throw userError(fmt::format("the model's stage marks make {} stages, the mesh has pp = {}", current + 1, pp));
  return stages;
}

std::vector<int64_t> stagesByFile(const std::vector<Layer> &layers, const Strategy &strategy) {
  std::map<std::string, int64_t> wanted;
  for (size_t s = 0; s < strategy.stages.size(); ++s)
    for (const std::string &path : strategy.stages[s])
      wanted[path] = s;
  for (auto &[path, stage] : wanted)
    if (std::none_of(layers.begin(), layers.end(), [&](const Layer &l) { return l.path == path; }))
      throw userError(fmt::format("stages: the model has no layer \"{}\"", path));
  std::vector<int64_t> stages;
  std::set<std::string> seen;
  int64_t current = 0;
  for (const Layer &layer : layers) {
    auto found = wanted.find(layer.path);
    if (found == wanted.end())
      throw userError(fmt::format("stages: layer \"{}\" of the model is in no stage", layer.path));
    // A shared layer that comes back later (a tied head) stays where the model has got to.
    if (seen.insert(layer.path).second && found->second < current)
      throw userError(fmt::format("stages: layer \"{}\" is in stage {}, but layers that run before it are in stage {}",
                                  layer.path, found->second, current));
    current = std::max(current, found->second);
    stages.push_back(current);
  }
  for (int64_t s = 0; s < (int64_t)strategy.stages.size(); ++s)
    if (std::find(stages.begin(), stages.end(), s) == stages.end())
      throw userError(fmt::format("stages: stage {} is empty in the order in which the model runs", s));
  return stages;
}

std::vector<int64_t> stagesByCost(const std::vector<Layer> &layers, int64_t pp) {
  std::vector<double> costs;
  for (const Layer &layer : layers)
    costs.push_back(layer.cost);
  std::vector<size_t> begins = balancedCuts(costs, pp);
  std::vector<int64_t> stages(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    stages[i] = std::upper_bound(begins.begin(), begins.end(), i) - begins.begin() - 1;
  return stages;
}

void setStage(const Layer &layer, int64_t stage) {
  for (Operation *op : layer.ops)
    op->setAttr(ir::attr::stage, IntegerAttr::get(IntegerType::get(op->getContext(), 64), stage));
}

} // namespace

void assignStages(ModuleOp module, Strategy &strategy) {
  int64_t pp = strategy.mesh.size("pp");
  auto forward = module.lookupSymbol<func::FuncOp>("forward"), eval = module.lookupSymbol<func::FuncOp>("eval");
  std::vector<Layer> layers = layersOf(forward);
  if (pp > (int64_t)layers.size())
    throw userError(fmt::format("mesh: pp = {} asks for more stages than the model's {} layers", pp, layers.size()));
  bool marked = std::any_of(layers.begin(), layers.end(), [](const Layer &l) { return markOf(l) >= 0; });
  std::vector<int64_t> stages = !strategy.stages.empty() ? stagesByFile(layers, strategy)
                                : pp == 1                ? std::vector<int64_t>(layers.size(), 0)
                                : marked                 ? stagesByMarks(layers, pp)
                                                         : stagesByCost(layers, pp);
  if (strategy.stages.empty() && marked && pp > 1)
    strategy.stagesOrigin = "code";
  strategy.stages.assign(pp, {});
  std::map<std::pair<std::string, int>, int64_t> stageOf; // by path and how often it came before
  std::map<std::string, int> seen;
  for (size_t i = 0; i < layers.size(); ++i) {
    setStage(layers[i], stages[i]);
    int occurrence = seen[layers[i].path]++;
    if (occurrence == 0)
      strategy.stages[stages[i]].push_back(layers[i].path);
    stageOf[{layers[i].path, occurrence}] = stages[i];
  }
  if (!eval)
    return;
  int64_t current = 0;
  seen.clear();
  for (const Layer &layer : layersOf(eval)) {
    auto found = stageOf.find({layer.path, seen[layer.path]++});
    current = found == stageOf.end() ? current : std::max(current, found->second);
    setStage(layer, current);
  }
}

} // namespace cleave::partitioner
