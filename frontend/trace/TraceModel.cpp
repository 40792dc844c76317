// Traces a model: arguments for inputs, parameters and buffers; the model's forward and its loss; results.
#include "frontend/trace/TraceModel.h"
#include "frontend/trace/Diagnose.h"
#include "frontend/trace/Mix.h"
#include "frontend/trace/Trace.h"
#include "runtime/base/UserCode.h"
#include "runtime/plan/OptimizerFields.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <set>
#include <utility>

namespace cleave {

namespace {

namespace attr = ir::attr;

/// `*` matches any characters, including dots ("*.bias" matches every bias).
bool matches(const char *pattern, const char *text) {
  const char *star = nullptr, *from = nullptr; // the last star in `pattern`, and the end of its match in `text`
  while (*text)
    if (*pattern == '*')
      star = pattern++, from = text;
    else if (*pattern == *text)
      ++pattern, ++text;
    else if (star)
      pattern = star + 1, text = ++from;
    else
      return false;
  while (*pattern == '*')
    ++pattern;
  return !*pattern;
}

class Builder {
public:
  Builder(const Model &model, const TrainConfig &config, int64_t rows, GraphModule &graph)
      : model(model), config(config), rows(rows), graph(graph), b(&graph.context()) {}

  void function(const char *name, Trace::Mode mode) {
    traced([=](Builder &builder) { return builder.build(name, mode); });
  }
  void prediction() {
    traced([](Builder &builder) { return builder.buildPrediction(); });
  }
  void optimizer();

private:
  /// Adds a function by `build`. If it draws random tensors, another trace with twice as many samples tells which of
  /// their dimensions have the samples: only the user's code knows.
  void traced(const std::function<Trace::Draws(Builder &)> &build);
  /// Return the random tensors of the function.
  Trace::Draws build(const char *name, Trace::Mode mode);
  Trace::Draws buildPrediction();

  /// Adds the function's arguments in order, with their attributes.
  void addInputs(mlir::Block *body, Trace &trace, std::vector<Tensor> &inputs, std::vector<Tensor> &targets);
  void normalise(Trace::Mode mode, std::vector<Tensor> &inputs);
  void addParameters(mlir::Block *body, Trace &trace);
  void addBuffers(mlir::Block *body, Trace &trace);
  mlir::Value argument(mlir::Block *body, SlotKind kind, const std::string &name, const Shape &shape,
                       mlir::Type element);
  /// Runs the model's forward.
  std::vector<Tensor> forward(Trace &trace, const std::vector<Tensor> &inputs);
  void setInit(const InitValues &init);
  void setGroups(const std::string &path);
  void finish(Trace &trace, const Loss &loss, Trace::Mode mode, mlir::func::FuncOp function);
  /// Ends the function: results, their kinds and names, the function's type.
  using Marks = std::vector<std::pair<SlotKind, std::string>>;
  /// What Indices.h found: attributes of the inputs, and results.
  void addIndices(Trace &trace, std::vector<mlir::Value> &results, Marks &marks);
  void close(Trace &trace, const std::vector<mlir::Value> &results, const Marks &marks, mlir::func::FuncOp function);

  const Model &model;
  const TrainConfig &config;
  int64_t rows;
  GraphModule &graph;
  mlir::Builder b;
  std::vector<mlir::NamedAttrList> argAttrs;
  const Trace::Draws *drawsOfMoreRows = nullptr;
};

void Builder::traced(const std::function<Trace::Draws(Builder &)> &build) {
  const Trace::Draws own = build(*this);
  if (own.empty())
    return;
  Trace::Draws more;
  try {
    GraphModule other;
    Builder ofMoreRows(model, config, 2 * rows, other);
    more = build(ofMoreRows);
  } catch (const std::exception &) { // the user's code fixes the number of samples
    return;
  }
  const auto guessed = [&](const auto &draw) {
    const auto found = more.find(draw.first);
    return found == more.end() ||
           Trace::samplesOf(draw.second, rows, nullptr) == Trace::samplesOf(draw.second, rows, &found->second);
  };
  if (std::ranges::all_of(own, guessed))
    return;
  graph.module().getBody()->back().erase();
  drawsOfMoreRows = &more;
  build(*this);
  drawsOfMoreRows = nullptr;
}

mlir::Value Builder::argument(mlir::Block *body, SlotKind kind, const std::string &name, const Shape &shape,
                              mlir::Type element) {
  mlir::NamedAttrList &attrs = argAttrs.emplace_back();
  attrs.set(attr::kind, kindAttr(b, kind));
  attrs.set(attr::name, b.getStringAttr(name));
  return body->addArgument(mlir::RankedTensorType::get(shape, element), b.getUnknownLoc());
}

void Builder::setInit(const InitValues &init) {
  argAttrs.back().set(attr::init, ir::InitAttr::get(b.getContext(), init.distribution, init.a, init.b));
}

void Builder::setGroups(const std::string &path) {
  for (const ParameterGroup &group : config.groups) {
    if (!matches(group.pattern.c_str(), path.c_str()))
      continue;
    if (group.lrScale)
      argAttrs.back().set(attr::lrScale, b.getF64FloatAttr(*group.lrScale));
    if (group.weightDecay)
      argAttrs.back().set(attr::weightDecay, b.getF64FloatAttr(*group.weightDecay));
  }
}

/// The values that a data set says its labels have, or its ids; labels may also be negative.
static std::optional<Interval> declaredValues(const DataField &field) {
  if (field.dtype != FieldType::I32 || field.classes <= 0)
    return std::nullopt;
  return Interval{field.isLabel() ? INT32_MIN : 0, field.classes - 1};
}

void Builder::addInputs(mlir::Block *body, Trace &trace, std::vector<Tensor> &inputs, std::vector<Tensor> &targets) {
  const std::vector<DataField> fields = fieldsOf(config.data);
  const auto forLoss = static_cast<size_t>(std::max<int64_t>(config.targets, 0));
  if (config.targets < 0 || fields.size() < forLoss + 1)
    throw userError(fmt::format("data: at least {} fields are needed, the last {} of them for the loss; found {}",
                                forLoss + 1, config.targets, fields.size()));
  for (const DataField &field : fields) {
    Shape shape = field.shape;
    shape.insert(shape.begin(), rows);
    constexpr DType types[] = {DType::F32, DType::I32, DType::U8}; // by FieldType
    mlir::Type element = elementType(b.getContext(), types[static_cast<size_t>(field.dtype)]);
    mlir::Value value = argument(body, SlotKind::Input, field.name, shape, element);
    const std::optional<Interval> declared = declaredValues(field);
    trace.inputs[value.getAsOpaquePointer()] = {field.name, field.shape, declared};
    if (declared)
      trace.ranges[value.getAsOpaquePointer()] = *declared;
    inputs.push_back(tensorOf(value));
  }
  targets.assign(inputs.end() - static_cast<std::ptrdiff_t>(forLoss), inputs.end());
  inputs.resize(inputs.size() - forLoss);
}

/// Makes numbers of the bytes of pictures, as the last transform says.
void Builder::normalise(Trace::Mode mode, std::vector<Tensor> &inputs) {
  const Pictures *pictures = std::get_if<Pictures>(&config.data);
  if (!pictures || inputs[0].dtype() != DType::U8)
    return;
  Tensor &image = inputs[0];
  image = cast(image, DType::F32, config.where) / 255;
  for (const Transform &transform : mode == Trace::Mode::Train ? pictures->train : pictures->eval)
    if (const auto *normal = std::get_if<Normalize>(&transform)) {
      const auto channels = [&](const std::array<double, 3> &of) {
        return constant({pictures->channels, 1, 1}, std::vector<float>(of.begin(), of.begin() + pictures->channels),
                        config.where);
      };
      image = (image - channels(normal->mean)) / channels(normal->deviation);
    }
}

void Builder::addParameters(mlir::Block *body, Trace &trace) {
  for (const Parameter *parameter : model.root->parameters()) {
    const std::string path = parameter->path();
    mlir::Value value = argument(body, SlotKind::Parameter, path, parameter->shape(), b.getF32Type());
    setInit(parameter->initial());
    if (parameter->requiresGrad()) {
      argAttrs.back().set(attr::trainable, b.getBoolAttr(true));
      setGroups(path);
    }
    trace.state[parameter] = value;
    trace.names[value.getAsOpaquePointer()] = path;
  }
}

void Builder::addBuffers(mlir::Block *body, Trace &trace) {
  for (const Buffer *buffer : model.root->buffers()) {
    mlir::Value value = argument(body, SlotKind::Buffer, buffer->path(), buffer->shape(), b.getF32Type());
    setInit(buffer->initial());
    trace.state[buffer] = value;
    trace.names[value.getAsOpaquePointer()] = buffer->path();
  }
}

void checkLoss(const Loss &loss, Where where) {
  const auto scalar = [](Tensor t) { return t.defined() && t.rank() == 0 && t.dtype() == DType::F32; };
  if (!scalar(loss.sum) || !scalar(loss.weight) || (loss.correct.defined() && !scalar(loss.correct)))
    failAt(fmt::format("loss: sum, weight and correct must be tensor<f32>, found {}, {} and {}", loss.sum.str(),
                       loss.weight.str(), loss.correct.str()),
           {}, where);
  for (const TopCorrect &top : loss.top)
    if (!scalar(top.count) || top.k < 1)
      failAt(
          fmt::format("loss: top must have positive k and counts tensor<f32>, found {} and {}", top.k, top.count.str()),
          {}, where);
  for (const LossTerm &term : loss.further)
    if (!scalar(term.sum) || !scalar(term.weight))
      failAt(fmt::format("loss: sum and weight of a further term must be tensor<f32>, found {} and {}", term.sum.str(),
                         term.weight.str()),
             {}, where);
  if (loss.staticWeight < 1)
    failAt(fmt::format("loss: staticWeight, the number of elements that count if none is ignored, must be positive, "
                       "found {}",
                       loss.staticWeight),
           {}, where);
}

/// Adds the results and sets the function's type.
void Builder::finish(Trace &trace, const Loss &loss, Trace::Mode mode, mlir::func::FuncOp function) {
  std::vector<mlir::Value> results = {valueOf(loss.sum), valueOf(loss.weight)};
  Marks marks = {{SlotKind::Loss, ""}, {SlotKind::Weight, ""}};
  if (loss.correct.defined()) {
    results.push_back(valueOf(loss.correct));
    marks.emplace_back(SlotKind::Correct, "");
  }
  for (const TopCorrect &top : loss.top) {
    results.push_back(valueOf(top.count));
    marks.emplace_back(SlotKind::Correct, std::to_string(top.k));
  }
  for (const LossTerm &term : loss.further) {
    const std::string number = std::to_string(&term - loss.further.data() + 1);
    results.insert(results.end(), {valueOf(term.sum), valueOf(term.weight)});
    marks.insert(marks.end(), {{SlotKind::Loss, number}, {SlotKind::Weight, number}});
  }
  for (const Buffer *buffer : trace.changed) {
    results.push_back(trace.state.at(buffer));
    marks.emplace_back(SlotKind::Buffer, buffer->path());
  }
  addIndices(trace, results, marks);
  close(trace, results, marks, function);
  if (mode == Trace::Mode::Train)
    function->setAttr(attr::staticWeight, b.getI64IntegerAttr(loss.staticWeight));
}

void Builder::addIndices(Trace &trace, std::vector<mlir::Value> &results, Marks &marks) {
  for (mlir::NamedAttrList &attributes : argAttrs)
    if (attributes.get(attr::kind) == kindAttr(b, SlotKind::Input))
      if (const auto found = trace.indicesOf.find(llvm::cast<mlir::StringAttr>(attributes.get(attr::name)).str());
          found != trace.indicesOf.end())
        attributes.set(attr::indices, b.getArrayAttr(found->second));
  for (const auto &[reader, count] : trace.invalid) {
    results.push_back(count);
    marks.emplace_back(SlotKind::Invalid, reader);
  }
}

void Builder::close(Trace &trace, const std::vector<mlir::Value> &results, const Marks &marks,
                    mlir::func::FuncOp function) {
  mlir::func::ReturnOp::create(trace.builder, b.getUnknownLoc(), results);
  mlir::Block &body = function.getBody().front();
  function.setType(b.getFunctionType(body.getArgumentTypes(), mlir::TypeRange(mlir::ValueRange(results))));
  // All attributes are set together, because MLIR keeps every list of attributes until its context is destroyed.
  llvm::SmallVector<mlir::DictionaryAttr> ofArguments, ofResults;
  for (const mlir::NamedAttrList &attributes : argAttrs)
    ofArguments.push_back(attributes.getDictionary(b.getContext()));
  for (const auto &[kind, name] : marks) {
    mlir::NamedAttrList attributes;
    attributes.set(attr::kind, kindAttr(b, kind));
    if (!name.empty())
      attributes.set(attr::name, b.getStringAttr(name));
    ofResults.push_back(attributes.getDictionary(b.getContext()));
  }
  function.setAllArgAttrs(ofArguments);
  function.setAllResultAttrs(ofResults);
}

std::vector<Tensor> Builder::forward(Trace &trace, const std::vector<Tensor> &inputs) {
  trace.inForward = true;
  auto outputs = callUser([] { return "forward"; }, [&] { return model.forward(inputs); });
  trace.inForward = false;
  return outputs;
}

Trace::Draws Builder::build(const char *name, Trace::Mode mode) {
  auto function = mlir::func::FuncOp::create(b.getUnknownLoc(), name, b.getFunctionType({}, {}));
  graph.module().push_back(function);
  mlir::Block *body = new mlir::Block;
  function.getBody().push_back(body);

  Trace trace(body, mode);
  trace.rows = rows, trace.drawsOfMoreRows = drawsOfMoreRows;
  trace.root = config.where;
  if (config.batch > 0)
    trace.batchShare = static_cast<double>(rows) / static_cast<double>(config.batch);
  TraceScope scope(trace);
  argAttrs.clear();
  std::vector<Tensor> inputs;
  std::vector<Tensor> targets;
  addInputs(body, trace, inputs, targets);
  normalise(mode, inputs);
  addParameters(body, trace);
  addBuffers(body, trace);
  const bool mixes = mode == Trace::Mode::Train && (config.mix.mixup > 0 || config.mix.cutMix > 0);
  MixedRows mixed;
  if (mixes)
    inputs[0] = (mixed = mixImages(config.mix, inputs[0], config.where)).images;
  const std::vector<Tensor> outputs = forward(trace, inputs);
  if (outputs.empty() || !std::all_of(outputs.begin(), outputs.end(), [](Tensor t) { return t.defined(); }))
    throw userError("forward: the model returned no tensor");
  Loss loss;
  {
    PathScope path(trace, "loss", Where());
    const auto lossOf = [&] { return callUser([] { return "loss"; }, [&] { return config.loss(outputs, targets); }); };
    loss = lossOf();
    if (mixes) { // correct is the label of the row's own image
      const int64_t classes = fieldsOf(config.data).back().classes;
      targets.at(0) = mixLabels(config.mix, targets.at(0), mixed.share, classes, config.where);
      const Loss own = std::exchange(loss, lossOf());
      loss.correct = own.correct;
      loss.top = own.top;
    }
  }
  checkLoss(loss, config.where);
  finish(trace, loss, mode, function);
  return trace.draws;
}

Trace::Draws Builder::buildPrediction() {
  auto function = mlir::func::FuncOp::create(b.getUnknownLoc(), "forward", b.getFunctionType({}, {}));
  graph.module().push_back(function);
  mlir::Block *body = new mlir::Block;
  function.getBody().push_back(body);

  Trace trace(body, Trace::Mode::Eval);
  trace.rows = rows, trace.drawsOfMoreRows = drawsOfMoreRows;
  TraceScope scope(trace);
  argAttrs.clear();
  std::vector<Tensor> inputs, targets;
  addInputs(body, trace, inputs, targets);
  const auto first = static_cast<unsigned>(inputs.size());
  body->eraseArguments(first, static_cast<unsigned>(targets.size())); // a prediction must not use them
  argAttrs.resize(first);
  normalise(Trace::Mode::Eval, inputs);
  addParameters(body, trace);
  addBuffers(body, trace);
  const std::vector<Tensor> outputs = forward(trace, inputs);
  if (outputs.empty())
    throw userError("forward: the model returned no tensor");
  std::vector<mlir::Value> results;
  Marks marks;
  for (const Tensor &output : outputs) {
    if (!output.defined())
      throw userError("forward: the model returned no tensor");
    if (output.rank() > 0 && output.shape()[0] != rows)
      throw userError(fmt::format("predict: the model returns {}; what it predicts is a scalar, or its first dimension "
                                  "is the batch, here of {} samples",
                                  output.str(), rows));
    marks.emplace_back(SlotKind::Output, results.empty() ? "output" : fmt::format("output.{}", results.size()));
    results.push_back(valueOf(output.dtype() == DType::F32 ? output : cast(output, DType::F32)));
  }
  addIndices(trace, results, marks);
  close(trace, results, marks, function);
  return trace.draws;
}

void Builder::optimizer() {
  const plan::OptimizerT optimizer = optimizerOf(config);
  mlir::NamedAttrList attrs;
  attrs.set("name", b.getStringAttr(optimizerName(config.optimizer)));
  attrs.set("lr", b.getF64FloatAttr(learningRate(config.optimizer)));
  for (const OptimizerField &field : optimizerFields(optimizer.kind))
    attrs.set(field.name, b.getF64FloatAttr(optimizer.*field.value));
  if (optimizer.kind == plan::OptimizerKind::Sgd)
    attrs.set("nesterov", b.getBoolAttr(optimizer.nesterov));
  graph.module()->setAttr(attr::optimizer, attrs.getDictionary(b.getContext()));
}

void checkGroups(const Model &model, const TrainConfig &config) {
  for (const ParameterGroup &group : config.groups) {
    bool used = false;
    for (const Parameter *parameter : model.root->parameters())
      used |= matches(group.pattern.c_str(), parameter->path().c_str());
    if (!used)
      throw userError(fmt::format("parameter group \"{}\": matches no parameter of the model", group.pattern));
  }
}

} // namespace

/// Whether pictures are normalised by the model: RandomErasing changes values after that.
static bool reachModelAsBytes(const Pictures &pictures) {
  const auto erases = [](const Transform &transform) { return std::holds_alternative<RandomErasing>(transform); };
  return std::ranges::none_of(pictures.train, erases) && std::ranges::none_of(pictures.eval, erases);
}

std::vector<DataField> fieldsOf(const Data &data) {
  if (const Mnist *mnist = std::get_if<Mnist>(&data))
    return {{"image", FieldType::F32, {mnist->channels, mnist->size, mnist->size}, 0},
            {"label", FieldType::I32, {}, mnist->classes}};
  if (const Text *text = std::get_if<Text>(&data))
    return {{"tokens", FieldType::I32, {text->context}, text->vocab},
            {"targets", FieldType::I32, {text->context}, text->vocab}};
  if (const SyntheticImages *images = std::get_if<SyntheticImages>(&data))
    return {{"image", FieldType::F32, {images->channels, images->height, images->width}, 0},
            {"label", FieldType::I32, {}, images->classes}};
  if (const Pictures *pictures = std::get_if<Pictures>(&data))
    return {{"image",
             reachModelAsBytes(*pictures) ? FieldType::U8 : FieldType::F32,
             {pictures->channels, pictures->height, pictures->width},
             0},
            {"label", FieldType::I32, {}, pictures->classes}};
  const auto &own = std::get<std::shared_ptr<Dataset>>(data);
  if (!own)
    throw userError("data: the program's data set must not be a null pointer");
  return callUser([] { return "data: the fields of the data set"; }, [&] { return own->fields(); });
}

std::string optimizerName(const Optimizer &optimizer) { return optimizerNames[optimizer.index()]; }
double learningRate(const Optimizer &optimizer) {
  return std::visit([](const auto &o) { return o.lr; }, optimizer);
}

plan::OptimizerT optimizerOf(const TrainConfig &config) {
  plan::OptimizerT stored;
  stored.kind = static_cast<plan::OptimizerKind>(config.optimizer.index()); // the enumeration has the variant's order
  stored.clip_norm = config.clipNorm;
  stored.ema = config.ema;
  std::visit(
      [&](const auto &optimizer) {
        stored.weight_decay = optimizer.weightDecay;
        if constexpr (std::is_same_v<std::decay_t<decltype(optimizer)>, Sgd>) {
          stored.momentum = optimizer.momentum;
          stored.nesterov = optimizer.nesterov;
        } else {
          stored.beta1 = optimizer.beta1;
          stored.beta2 = optimizer.beta2;
          stored.eps = optimizer.eps;
        }
      },
      config.optimizer);
  return stored;
}

void internal::wrongInputs(size_t given, size_t most) {
  failAt(fmt::format("forward: the data set gives the model {} tensor{} (those of its fields that are not the loss's), "
                     "and the model has no forward of that many{}",
                     given, given == 1 ? "" : "s",
                     given > most ? fmt::format("; a forward takes at most {}", most) : ""),
         {}, Where());
}

void requireParametersWithin(const Module &root, double most, const std::string &holder) {
  double bytes = 0;
  const Parameter *largest = nullptr;
  for (const Parameter *parameter : root.parameters()) {
    bytes += 4.0 * static_cast<double>(parameter->elements());
    if (!largest || parameter->elements() > largest->elements())
      largest = parameter;
  }
  if (bytes <= most)
    return;
  const double gib = 1 << 30;
  failAt(fmt::format("the parameters take {:.1f} GiB, and {} has {:.1f} GiB of memory; the largest is {}", bytes / gib,
                     holder, most / gib, largest->path()),
         {{largest->path(), shapeText(largest->shape())}}, largest->place());
}

/// The names of the function's counts of invalid indices.
static std::set<std::string> countsOf(mlir::func::FuncOp function) {
  std::set<std::string> names;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (ir::resultKind(function, i) == SlotKind::Invalid)
      names.insert(ir::resultText(function, i, attr::name).str());
  return names;
}

/// Lets both functions have the same counts: what only the other one reads is counted as 0. A plan has one list of
/// metrics, which training and evaluation write.
static void shareCounts(mlir::func::FuncOp function, const std::set<std::string> &counts) {
  const std::set<std::string> own = countsOf(function);
  mlir::Operation *end = function.front().getTerminator();
  mlir::Builder builder(function.getContext());
  GraphBuilder b{mlir::OpBuilder(end)};
  b.setOrigin(end->getLoc(), {builder.getNamedAttr(attr::path, builder.getStringAttr(""))});
  for (const std::string &name : counts) {
    if (own.count(name))
      continue;
    const auto type = mlir::RankedTensorType::get({}, builder.getF32Type());
    end->insertOperands(end->getNumOperands(), b.constant(type, 0));
    mlir::NamedAttrList attributes;
    attributes.set(attr::kind, kindAttr(builder, SlotKind::Invalid));
    attributes.set(attr::name, builder.getStringAttr(name));
    (void)function.insertResult(function.getNumResults(), type, attributes.getDictionary(function.getContext()));
  }
}

GraphModule traceModel(const Model &model, const TrainConfig &config, int64_t rows, int64_t evalRows) {
  if (!config.loss)
    throw userError("loss: none was given");
  requireParametersWithin(*model.root, static_cast<double>(mostParameterBytes), "the largest machine");
  checkGroups(model, config);
  GraphModule graph;
  Builder builder(model, config, rows, graph);
  builder.function("forward", Trace::Mode::Train);
  Builder(model, config, evalRows ? evalRows : rows, graph).function("eval", Trace::Mode::Eval);
  const auto functionOf = [&](const char *name) { return llvm::cast<mlir::func::FuncOp>(graph.function(name)); };
  shareCounts(functionOf("forward"), countsOf(functionOf("eval")));
  shareCounts(functionOf("eval"), countsOf(functionOf("forward")));
  builder.optimizer();
  if (const std::string problems = graph.verify(); !problems.empty())
    throw Error(Status::Internal, "the traced graph is not valid, which is Cleave's fault:\n" + problems);
  return graph;
}

GraphModule tracePrediction(const Model &model, const TrainConfig &config, int64_t rows) {
  GraphModule graph;
  Builder(model, config, rows, graph).prediction();
  if (const std::string problems = graph.verify(); !problems.empty())
    throw Error(Status::Internal, "the traced prediction is not valid, which is Cleave's fault:\n" + problems);
  return graph;
}

} // namespace cleave
