// Generates a case from a seed: data, model, loss, training, split.
#include "frontend/trace/Trace.h"
#include "ir/GraphModule.h"
#include "partitioner/stages/Layers.h"
#include "tests/random/Drawing.h"
#include "tests/random/Run.h"
#include "tests/random/Tables.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::random_models {

namespace {

/// The number of classes of integer inputs, which is the size of the smallest embedding.
constexpr int64_t ids = 5;

void drawFields(Chance &c, Recipe &recipe) {
  const auto size = [&] { return c.whole(2, 8); };
  const auto one = [&](const std::string &name) -> Field {
    const FieldType numbers = c.one(0.15) ? FieldType::U8 : FieldType::F32;
    switch (c.weighted({3, 3, 3, 2})) {
    case 0:
      return {name, numbers, {c.whole(3, 12)}};
    case 1:
      return {name, numbers, {c.whole(1, 4), c.whole(3, 7), c.whole(3, 7)}};
    case 2:
      return {name, numbers, {size(), size()}};
    default:
      return {name, FieldType::I32, {c.whole(2, 6)}, ids, c.one(0.5)};
    }
  };
  recipe.fields.push_back(one("x"));
  const bool labels = recipe.fields[0].dtype == FieldType::I32;
  if (labels || c.one(0.35))
    recipe.fields.push_back(labels && c.one(0.5) ? Field{"y", FieldType::F32, {size(), size()}} : one("y"));
}

void drawTraining(Chance &c, Recipe &recipe) {
  recipe.wholeNumbers = c.one(0.3);
  recipe.microbatches =
      c.of<int64_t>(recipe.wholeNumbers ? std::vector<int64_t>{1, 2, 2, 4} : std::vector<int64_t>{1, 1, 2, 2, 3, 4});
  recipe.batch = recipe.microbatches * (recipe.wholeNumbers ? c.of<int64_t>({2, 3, 4, 4, 8}) : c.whole(2, 7));
  recipe.evalBatch = recipe.evalSamples = recipe.batch;
  if (c.one(0.25))
    recipe.evalBatch = recipe.evalSamples = recipe.microbatches * c.whole(2, 7);
  if (c.one(0.25))
    recipe.evalSamples = c.whole(1, recipe.evalBatch + 3);
  recipe.optimizer = recipe.wholeNumbers ? c.of<std::string>({"sgd", "momentum"})
                                         : c.of<std::string>({"sgd", "momentum", "nesterov", "adam", "adamw"});
  recipe.lr = recipe.optimizer.starts_with("adam") ? 0.01 : recipe.wholeNumbers ? 0.5 : 0.25;
  if (!recipe.wholeNumbers && c.one(0.25))
    recipe.clipNorm = 0.5;
  if (!recipe.wholeNumbers && c.one(0.3))
    recipe.weightDecay = 0.125;
  if (c.one(0.15))
    recipe.ema = recipe.wholeNumbers ? 0.5 : 0.75;
  if (!recipe.wholeNumbers && c.one(0.12)) {
    recipe.precision = c.one(0.6) ? "bf16" : "fp16";
    recipe.optLevel = c.of<std::string>({"O1", "O2", "O2", "O3"});
    if (c.one(0.3))
      recipe.reduceDtype = recipe.precision;
  }
  if (c.one(0.2))
    recipe.layout = "nhwc";
}

/// Adds most unused values to the prediction, so that they affect the loss. Returns the new prediction.
int gatherLooseEnds(Drawing &d, int y) {
  for (int value = d.cls().body.inputs; value < d.count(); ++value)
    if (value != y && d.at(value).defined() && !d.used(value) && (d.whole() || !d.constant(value)) &&
        d.at(value).dtype() == DType::F32 && d.chance.one(0.8)) {
      const int scalar = d.at(value).rank() == 0 ? value : d.add(d.whole() ? "sum" : "mean", {value}, {0});
      const int next = d.add("add", {y, scalar});
      y = next < 0 ? y : next;
    }
  return y;
}

/// Draws the prediction, which has one row per sample.
void drawHead(Drawing &d) {
  const auto fits = [&](Tensor t) { return t.rank() >= 1 && t.size(0) == d.rows(); };
  int y = d.pick([&](Tensor t) { return fits(t) && t.rank() >= 2; });
  if (y < 0)
    y = d.pick(fits);
  if (y < 0) { // no float value has one row per sample
    const int ids = d.pickInteger([](Tensor) { return true; });
    y = ids >= 0 ? d.add("castFloat", {ids}) : d.add("full", {}, {d.rows(), 3}, {1});
  }
  const auto then = [&](int next) { y = next < 0 ? y : next; }; // skips rejected calls
  if (d.at(y).rank() == 1)
    then(d.add("unsqueeze", {y}, {-1}));
  if (d.at(y).rank() > 2 && d.chance.one(0.6))
    then(d.add("flatten", {y}, {1, -1}));
  if (d.chance.one(0.75)) {
    const int member =
        d.declare({"Linear", d.newName("out"), {d.shape(y).back(), d.chance.whole(2, 8), d.chance.one(0.7)}});
    then(d.add("call", {y}, {-1}, {}, member));
  }
  d.finish(gatherLooseEnds(d, y));
}

void drawLoss(Chance &c, Recipe &recipe, const Shape &prediction) {
  std::vector<double> weights;
  for (const LossKind &kind : lossKinds())
    weights.push_back(recipe.wholeNumbers && !kind.exact ? 0 : kind.weight);
  const LossKind &kind = lossKinds()[c.weighted(weights)];
  recipe.loss = kind.name;
  Field target{"target", kind.labels ? FieldType::I32 : FieldType::F32, {prediction.begin() + 1, prediction.end()}};
  if (kind.labels) {
    target.classes = target.shape.back();
    target.declared = c.one(0.5);
    target.shape.pop_back();
  }
  recipe.fields.push_back(target);
}

/// Sometimes draws a second output with its own target; the loss is then a weighted sum.
void drawSecond(Drawing &d) {
  Body &body = d.cls().body;
  const int y = d.pick([&](Tensor t) { return t.rank() >= 1 && t.size(0) == d.rows(); });
  if (y < body.inputs || y == body.result || !d.chance.one(0.15))
    return;
  body.second = y;
  const Shape shape = d.shape(y);
  d.recipe.fields.push_back({"second", FieldType::F32, {shape.begin() + 1, shape.end()}});
}

/// Sometimes adds outputs that the loss ignores: scalars, or rows of the batch, often reshaped or of a layer that nothing
/// else uses. And sometimes members that nothing uses at all.
void drawUnused(Drawing &d) {
  Body &body = d.cls().body;
  for (int64_t more = d.chance.one(0.3) ? d.chance.whole(1, 2) : 0; more > 0; --more) {
    int y = d.pick([&](Tensor t) { return t.rank() == 0 || t.size(0) == d.rows(); });
    const auto then = [&](int next) { y = next < 0 ? y : next; }; // skips rejected calls
    if (y >= 0 && d.at(y).rank() > 0 && d.chance.one(0.4)) {
      const int member = d.declare({"Linear", d.newName("side"), {d.shape(y).back(), d.chance.whole(1, 5), 1}});
      then(d.add("call", {y}, {-1}, {}, member));
    }
    if (y >= 0 && d.at(y).rank() > 0 && d.chance.one(0.5)) // flatten makes no op of fewer dimensions
      then(d.at(y).rank() > 2 && d.chance.one(0.5) ? d.add("flatten", {y}, {1, -1}) : d.add("unsqueeze", {y}, {-1}));
    if (y >= 0)
      body.others.push_back(y);
  }
  if (d.chance.one(0.15))
    d.declare(d.chance.one(0.5) ? Part{"Linear", d.newName("idle"), {3, 2, 1}}
                                : Part{"BatchNorm2d", d.newName("idle"), {3, 0}});
  d.finish(body.result); // the values now have more shapes
}

/// Two convolutions, of which the runtime computes the second one by Winograd's method: it has 16 channels or more.
void drawWide(Chance &c, Drawing &d) {
  const auto convolution = [&](int x, std::vector<int64_t> ints) {
    return x < 0 ? -1 : d.add("call", {x}, {-1}, {}, d.declare({"Conv2d", d.newName("wide"), std::move(ints)}));
  };
  const int x = d.pick([](Tensor t) { return t.rank() == 4; });
  const int64_t kernel = c.whole(1, 2);
  if (x < 0)
    return;
  const int first = convolution(x, {d.shape(x)[1], 16, kernel, kernel, 0, 1, c.one(0.6), 1});
  const int64_t dilation = c.one(0.3) ? c.whole(2, 3) : 1;
  const int second = convolution(first, {16, 16 * c.whole(1, 3), c.one(0.3) ? 5 : 3, 1, c.whole(0, 2) * dilation, 1, c.one(0.6), dilation});
  if (!d.whole())
    d.add("timesNumber", {second}, {}, {0.25}); // sums of so many addends are large
}

void drawModel(Chance &c, Recipe &recipe) {
  GraphModule graph;
  mlir::Builder b(&graph.context());
  auto function = mlir::func::FuncOp::create(b.getUnknownLoc(), "drawing", b.getFunctionType({}, {}));
  graph.module().push_back(function);
  mlir::Block *body = new mlir::Block;
  function.getBody().push_back(body);
  Trace trace(body, Trace::Mode::Train);
  TraceScope scope(trace);
  std::vector<Tensor> inputs;
  for (const Field &field : recipe.fields) {
    Shape shape = field.shape;
    shape.insert(shape.begin(), recipe.rows());
    const mlir::Type type = field.dtype == FieldType::I32  ? mlir::Type(b.getI32Type())
                            : field.dtype == FieldType::U8 ? mlir::Type(b.getIntegerType(8, false))
                                                           : b.getF32Type();
    inputs.push_back(tensorOf(body->addArgument(trace.type(shape, type), b.getUnknownLoc())));
  }
  recipe.classes.push_back({"Net", {}, {}});
  Instance root(recipe, 0, true);
  Drawing d(c, recipe, 0, root, trace, inputs, 0);
  for (size_t field = 0; field < recipe.fields.size(); ++field)
    if (recipe.fields[field].dtype == FieldType::U8)
      d.add("timesNumber", {d.add("castFloat", {static_cast<int>(field)})}, {}, {recipe.wholeNumbers ? 1.0 : 1.0 / 128});
  if (d.pick() < 0) { // all fields are labels
    const int member = d.declare({"Embedding", d.newName("embed"), {c.whole(ids, 9), c.whole(2, 8)}});
    d.add("call", {0}, {-1}, {}, member);
  }
  if (c.one(0.1))
    drawWide(c, d);
  d.calls(c.whole(2, 14));
  drawHead(d);
  drawLoss(c, recipe, d.shape(d.cls().body.result));
  drawSecond(d);
  drawUnused(d);
}

// ---- the split ------------------------------------------------------------------------------------------------------

/// Draws a schedule that the numbers of layers and microbatches allow.
void drawSchedule(Chance &c, Recipe &recipe, int64_t layers) {
  const int64_t pp = partitioner::parseMesh(recipe.mesh).size("pp");
  recipe.schedule = c.of<std::string>({"gpipe", "1f1b", "interleaved", "interleaved", "zb-h1", "zb-h2", "zb-v", "auto", "auto"});
  const bool several = recipe.schedule == "interleaved" || recipe.schedule == "zb-v" || (recipe.schedule == "auto" && c.one(0.5));
  if (several)
    recipe.virtualStages = recipe.schedule == "zb-v" ? 2 : c.whole(2, 3);
  if ((several && pp * recipe.virtualStages > layers) ||
      (recipe.schedule == "interleaved" && recipe.microbatches % pp)) {
    recipe.schedule = "1f1b";
    recipe.virtualStages = 1;
  }
}

void drawMesh(Chance &c, Recipe &recipe) {
  static const std::vector<std::string> meshes{
      "dp=1",           "dp=2",      "dp=2",      "dp=3",           "dp=4",      "tp=2",      "tp=2",
      "tp=2",           "tp=3",      "tp=4",      "pp=2",           "pp=2",      "pp=3",      "pp=4",
      "dp=2,tp=2",      "tp=2/dp=2", "dp=3,tp=2", "dp=2,tp=3",      "dp=2,pp=2", "tp=2,pp=2", "tp=2,pp=2",
      "dp=2,tp=2,pp=2", "tp=2,pp=3", "dp=2,pp=3", "dp=2/tp=2/pp=2", "tp=4,pp=2", "dp=4,tp=2"};
  const auto layers = layersOfModel(recipe);
  const auto most = std::count_if(layers.begin(), layers.end(), [](const ModelLayer &l) { return l.parameters; });
  do // rarely keep a mesh with too many stages or too few rows: the compiler refuses it
    recipe.mesh = c.of(meshes);
  while ((partitioner::parseMesh(recipe.mesh).size("pp") > most ||
          partitioner::parseMesh(recipe.mesh).size("dp") > recipe.rows()) &&
         c.one(0.97));
  drawSchedule(c, recipe, most);
  if (c.one(0.3))
    recipe.recompute = c.one(0.5) ? "full" : "selective";
  recipe.sequence = partitioner::parseMesh(recipe.mesh).size("tp") > 1 && c.one(0.3);
  if (partitioner::parseMesh(recipe.mesh).size("dp") > 1 && c.one(0.5))
    recipe.zero = c.whole(1, 3);
  const Mesh mesh = partitioner::parseMesh(recipe.mesh);
  recipe.scatterGather = mesh.size("tp") > 1 && mesh.size("pp") > 1 && c.one(0.5);
}

/// Draws the mesh axes that split each dimension; the result is always legal.
std::vector<std::string> drawAxes(Chance &c, const Mesh &mesh, const Shape &shape) {
  std::vector<std::string> dims(shape.size());
  for (std::string axis : {"tp", "dp"}) {
    const auto d = static_cast<size_t>(c.whole(0, static_cast<int64_t>(shape.size())));
    if (mesh.size(axis) == 1 || d >= shape.size())
      continue;
    if (dims[d].empty() && shape[d] >= mesh.size(axis))
      dims[d] = axis;
    else if (!dims[d].empty() && shape[d] >= mesh.size(axis) * mesh.size(dims[d]) && c.one(0.7))
      dims[d] += "+" + axis;
  }
  return dims;
}

/// Writes a dimension as factors, one of which is split, such as "0:3x4.1"; or as the plain dimension.
std::string drawFactors(Chance &c, int64_t size, size_t dim, int64_t parts) {
  for (int64_t k = 2; k < size; ++k)
    if (size % k == 0 && (k >= parts || size / k >= parts) && c.one(0.5))
      return fmt::format("\"{}:{}x{}.{}\"", dim, k, size / k, k >= parts ? 0 : 1);
  return fmt::format("\"{}\"", dim);
}

/// The smallest number of heads of the attention layers with this name; 0 if there are none.
int64_t headsOf(const Recipe &recipe, const std::string &member) {
  int64_t fewest = 0;
  for (const Class &cls : recipe.classes)
    for (const Part &part : cls.members)
      if (part.kind == "MultiheadAttention" && part.name == member && (fewest == 0 || part.ints[1] < fewest))
        fewest = part.ints[1];
  return fewest;
}

/// A rule that splits the heads of an attention layer's projection. Empty if the parameter is not such a projection or
/// the layer has fewer heads than tp.
std::string headsRule(const Recipe &recipe, const std::string &path, int64_t tp) {
  const size_t dot = path.rfind('.');
  const std::string layer = dot == std::string::npos ? "" : path.substr(0, dot);
  const bool projection = path.substr(dot + 1) == "in_proj_weight" || path.substr(dot + 1) == "in_proj_bias";
  if (!projection || tp == 1 || headsOf(recipe, layer.substr(layer.rfind('.') + 1)) < tp)
    return {};
  return fmt::format("\"{}\" = {{ heads = \"tp\" }}\n", path);
}

void drawShards(Chance &c, Recipe &recipe, const Mesh &mesh) {
  if (!c.one(0.35) || mesh.size("dp") * mesh.size("tp") == 1)
    return;
  const Instance root(recipe, 0, true);
  std::string text;
  for (const Parameter *parameter : root.parameters()) {
    if (!c.one(0.4) || parameter->shape().empty())
      continue;
    const std::string heads = headsRule(recipe, parameter->path(), mesh.size("tp"));
    if (!heads.empty() && c.one(0.6)) {
      text += heads;
      continue;
    }
    const std::vector<std::string> dims = drawAxes(c, mesh, parameter->shape());
    std::vector<std::string> entries;
    for (size_t d = 0; d < dims.size(); ++d)
      if (!dims[d].empty()) {
        const bool one = dims[d] == "tp" || dims[d] == "dp";
        entries.push_back(fmt::format("{} = \"{}\"",
                                      one && c.one(0.15) ? drawFactors(c, parameter->shape()[d], d, mesh.size(dims[d]))
                                                         : fmt::format("\"{}\"", d),
                                      dims[d]));
      }
    if (!entries.empty())
      text += fmt::format("\"{}\" = {{ {} }}\n", parameter->path(), fmt::join(entries, ", "));
  }
  if (!text.empty())
    recipe.stagesAndShards += "[shard]\n" + text;
}

/// Inserts withSharding marks after some nodes of the root and, more rarely, of other classes.
void drawMarks(Chance &c, Recipe &recipe, const Mesh &mesh) {
  if (!c.one(0.3) || mesh.size("dp") * mesh.size("tp") == 1)
    return;
  for (Class &cls : recipe.classes) {
    const std::vector<Shape> &shapes = cls.body.shapes;
    std::vector<std::pair<int, std::vector<std::string>>> marks;
    for (int value = 0; value < static_cast<int>(shapes.size()); ++value)
      if (!shapes[static_cast<size_t>(value)].empty() && c.one(&cls == &recipe.classes[0] ? 0.15 : 0.08)) {
        std::vector<std::string> dims = drawAxes(c, mesh, shapes[static_cast<size_t>(value)]);
        for (std::string &entry : dims)
          if (entry.empty() && c.one(0.5))
            entry = "whole";
        marks.push_back({value, dims});
      }
    for (auto it = marks.rbegin(); it != marks.rend(); ++it)
      insertMark(cls.body, it->first, it->second);
  }
}

/// Inserts stage marks at random places of the root.
void drawStageMarks(Chance &c, Recipe &recipe, int64_t stages) {
  Body &body = recipe.classes[0].body;
  const auto nodes = static_cast<int64_t>(body.nodes.size());
  std::vector<int64_t> places;
  for (int64_t k = 1; k < stages; ++k)
    places.push_back(c.whole(1, std::max<int64_t>(1, nodes - 1)));
  std::sort(places.begin(), places.end());
  for (int64_t k = stages - 1; k >= 1; --k)
    insertStage(body, places[static_cast<size_t>(k - 1)], k);
}

/// Names of the layers of one stage. Sometimes a module replaces its layers, if all of them are in the stage.
std::vector<std::string> coarser(Chance &c, const std::vector<std::string> &stage,
                                 const std::vector<std::string> &all) {
  std::vector<std::string> names = stage;
  for (const std::string &layer : stage) {
    const size_t dot = layer.find('.');
    if (dot == std::string::npos || !c.one(0.3))
      continue;
    const std::string prefix = layer.substr(0, dot + 1);
    const auto inside = [&](const std::string &name) { return name.starts_with(prefix); };
    if (std::count_if(all.begin(), all.end(), inside) != std::count_if(stage.begin(), stage.end(), inside) ||
        std::none_of(names.begin(), names.end(), inside) ||
        std::find(all.begin(), all.end(), layer.substr(0, dot)) != all.end())
      continue;
    *std::find_if(names.begin(), names.end(), inside) = layer.substr(0, dot);
    std::erase_if(names, inside);
  }
  return names;
}

/// Writes the stages of a strategy file: the layers in execution order, cut at random places. A mark is an op, so it may
/// make its module the first of several layers.
void drawStageFile(Chance &c, Recipe &recipe, int64_t stages) {
  std::vector<std::string> layers;
  std::vector<ModelLayer> all;
  try {
    all = layersOfModel(recipe, true);
  } catch (const ModelError &) { // a mark in a module that is called with another rank or with other sizes: refused
    return;
  }
  for (const ModelLayer &layer : all)
    if (!layer.path.empty() && std::find(layers.begin(), layers.end(), layer.path) == layers.end())
      layers.push_back(layer.path);
  if (static_cast<int64_t>(layers.size()) < stages)
    return;
  std::vector<size_t> cuts;
  while (static_cast<int64_t>(cuts.size()) < stages - 1) {
    const auto cut = static_cast<size_t>(c.whole(1, static_cast<int64_t>(layers.size()) - 1));
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end())
      cuts.push_back(cut);
  }
  cuts.push_back(layers.size());
  std::sort(cuts.begin(), cuts.end());
  std::string text = "stages = [";
  for (size_t from = 0; size_t cut : cuts) {
    const std::vector<std::string> stage(layers.begin() + static_cast<long>(from),
                                         layers.begin() + static_cast<long>(cut));
    const std::vector<std::string> names = coarser(c, stage, layers);
    for (size_t i = 0; i < names.size(); ++i)
      text += fmt::format("{}\"{}\"", i ? ", " : "[", names[i]);
    text += "], ";
    from = cut;
  }
  recipe.stagesAndShards = text + "]\n" + recipe.stagesAndShards;
}

} // namespace

Recipe generate(uint64_t seed) {
  Recipe recipe;
  recipe.seed = seed;
  Chance c(seed);
  drawTraining(c, recipe);
  drawFields(c, recipe);
  drawModel(c, recipe);
  if (recipe.suitsWinograd() && c.one(0.7))
    recipe.layout = "nhwc";
  if (recipe.evalBatch != recipe.batch && !takesEvalBatch(recipe))
    recipe.evalBatch = recipe.evalSamples = recipe.batch;
  drawMesh(c, recipe);
  const Mesh mesh = partitioner::parseMesh(recipe.mesh);
  const int64_t stages = mesh.size("pp") * recipe.virtualStages;
  drawMarks(c, recipe, mesh);
  const size_t how = c.weighted({2, 2, 2});
  if (stages > 1 && how == 1)
    drawStageMarks(c, recipe, stages);
  drawShards(c, recipe, mesh);
  if (stages > 1 && how == 2)
    drawStageFile(c, recipe, stages);
  recipe.drawnData = c.one(0.4);
  if (mesh.ranks() > 1 && mesh.ranks() <= 4 && c.one(0.12)) // more ranks take a search of many seconds
    recipe.searched = c.one(0.5) ? "alike" : "mixed";
  return recipe;
}

} // namespace cleave::random_models
