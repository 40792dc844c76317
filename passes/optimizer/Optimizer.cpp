// Builds @update.
#include "passes/optimizer/Optimizer.h"

#include "ir/Phase.h"
#include "passes/optimizer/Settings.h"
#include "passes/precision/LossScale.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/rewrite/Values.h"
#include "runtime/base/Error.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_BUILDOPTIMIZERPASS
#include "passes/Passes.h.inc"

namespace {

/// A trainable parameter and its values in @update.
struct Parameter {
  std::string name;
  RankedTensorType type, gradientType;
  DictionaryAttr attributes; // of its argument in @train
  Location location;
  Value value, gradient;
  llvm::SmallVector<Value> states;

  /// The parameter's own setting, or else the optimizer's.
  double setting(llvm::StringRef attribute, double otherwise) const {
    return numberAttr(attributes.get(attribute)).value_or(otherwise);
  }
  double lrScale() const { return setting(ir::attr::lrScale, 1); }
};

/// Scalars shared by all parameters, as tensor<f32>.
struct Scalars {
  Value lr, step, weight;
  Value gradientScale;                       // static count / weight, times clipping, divided by the loss scale
  Value lossScale, cleanSteps, skippedSteps; // states, if there is a loss scale
  Value finite;                              // i1: whether the step is applied
  Value firstStep;                           // i1: whether averages begin with the parameters
  Value stepSize, inverseRootBiasCorrection; // lr / (1 - beta1^step) (SGD: lr), 1 / sqrt(1 - beta2^step)
  std::map<double, Value> steps;             // by a parameter's lr factor: stepSize * factor
  std::map<double, Value> kept;              // AdamW, by factor * decay: 1 - lr * factor * decay
};

class UpdateBuilder {
public:
  UpdateBuilder(ModuleOp module, func::FuncOp train)
      : module(module), train(train), e(OpBuilder(module.getContext())),
        settings(readOptimizer(module->getAttrOfType<DictionaryAttr>(ir::attr::optimizer))),
        lossScale(lossScaleOf(module)) {}

  void build() {
    collectParameters();
    createFunction();
    e.shareSplats(module.getLoc());
    prepareScalars();
    scaleSteps();
    llvm::SmallVector<Value> results;
    for (Parameter &parameter : parameters) {
      originOf(parameter);
      results.push_back(update(parameter));
    }
    for (Parameter &parameter : parameters)
      results.append(parameter.states.begin(), parameter.states.end());
    if (lossScale)
      moveLossScale(results);
    func::ReturnOp::create(e.builder(), module.getLoc(), results);
  }

private:
  void collectParameters();
  void createFunction();
  void prepareScalars();
  void scaleSteps();
  Value squaredNorm();
  void moveLossScale(llvm::SmallVector<Value> &results);
  Value update(Parameter &parameter);
  /// Whether gradients are those of the loss's sum. Those of a loss with several terms are already divided (@weights).
  bool dividesByWeight() { return !module.lookupSymbol("weights"); }
  double decayOf(const Parameter &p) const { return p.setting(ir::attr::weightDecay, settings.weight_decay); }
  Value sgd(Parameter &parameter, Value gradient);
  Value adam(Parameter &parameter, Value gradient);
  Value biasCorrection(double beta);

  void originOf(const Parameter &parameter) {
    llvm::StringRef name = parameter.name;
    e.setOrigin(parameter.location, {});
    e.setAttribute(ir::attr::path, name.contains('.') ? name.rsplit('.').first : llvm::StringRef());
    e.setAttribute(ir::attr::parameter, name);
  }
  void sharedOrigin() {
    e.setOrigin(module.getLoc(), {});
    e.setAttribute(ir::attr::path, "optimizer");
  }
  Value scalar(double value) { return e.constant(RankedTensorType::get({}, e.builder().getF32Type()), value); }

  ModuleOp module;
  func::FuncOp train;
  GraphBuilder e;
  plan::OptimizerT settings;
  std::optional<LossScale> lossScale;
  std::vector<Parameter> parameters;
  Scalars scalars;
};

/// Collects the parameters that have gradients in @train, in that order.
void UpdateBuilder::collectParameters() {
  llvm::StringMap<unsigned> arguments;
  for (unsigned i = 0; i < train.getNumArguments(); ++i)
    if (ir::argumentKind(train, i) == ir::SlotKind::Parameter)
      arguments[ir::argumentText(train, i, ir::attr::name)] = i;
  for (unsigned i = 0; i < train.getNumResults(); ++i) {
    if (ir::resultKind(train, i) != ir::SlotKind::Gradient)
      continue;
    auto name = train.getResultAttrOfType<StringAttr>(i, ir::attr::name);
    unsigned argument = arguments.at(name.getValue());
    parameters.push_back({name.getValue().str(),
                          cast<RankedTensorType>(train.getArgument(argument).getType()),
                          cast<RankedTensorType>(train.getResultTypes()[i]),
                          train.getArgAttrDict(argument),
                          train.getArgument(argument).getLoc(),
                          {},
                          {},
                          {}});
  }
}

void UpdateBuilder::createFunction() {
  for (const Parameter &p : parameters)
    if (settings.ema > 0 && !p.type.getElementType().isF32())
      throw userError(
          fmt::format("ema: averages need parameters in fp32, which --opt-level O0 to O2 keep; \"{}\" has a "
                      "half type",
                      p.name));
  OpBuilder &b = e.builder();
  llvm::SmallVector<Type> types, resultTypes;
  llvm::SmallVector<DictionaryAttr> attributes, resultAttributes;
  llvm::SmallVector<Location> locations;
  auto named = [&](ir::SlotKind kind, llvm::StringRef name) {
    return NamedAttrList(
        {b.getNamedAttr(ir::attr::kind, ir::kindAttr(b, kind)), b.getNamedAttr(ir::attr::name, b.getStringAttr(name))});
  };
  auto argument = [&](Type type, Location location, NamedAttrList list) {
    types.push_back(type), locations.push_back(location), attributes.push_back(list.getDictionary(b.getContext()));
  };
  auto result = [&](Type type, NamedAttrList list) {
    resultTypes.push_back(type), resultAttributes.push_back(list.getDictionary(b.getContext()));
  };
  for (Parameter &p : parameters) {
    argument(p.type, p.location, NamedAttrList(p.attributes));
    result(p.type, named(ir::SlotKind::Parameter, p.name));
  }
  for (Parameter &p : parameters)
    argument(p.gradientType, p.location, named(ir::SlotKind::Gradient, p.name));
  for (Parameter &p : parameters)
    for (const std::string &slot : statesOf(settings)) {
      NamedAttrList list = named(ir::SlotKind::State, p.name + "." + slot);
      Type type = p.type.clone(b.getF32Type());
      result(type, list);
      list.set(ir::attr::parameter, b.getStringAttr(p.name));
      const Attribute init = slot == averageState ? p.attributes.get(ir::attr::init) : nullptr;
      list.set(ir::attr::init, init ? init : ir::InitAttr::get(b.getContext(), "constant", 0.0, 0.0));
      argument(type, p.location, list);
    }
  auto scalarType = RankedTensorType::get({}, b.getF32Type());
  if (lossScale)
    for (const char *name : {lossScaleState, cleanStepsState, skippedStepsState}) {
      NamedAttrList list = named(ir::SlotKind::State, name);
      result(scalarType, list);
      list.set(ir::attr::init,
               ir::InitAttr::get(b.getContext(), "constant", name == lossScaleState ? lossScale->initial : 0.0, 0.0));
      argument(scalarType, module.getLoc(), list);
    }
  argument(scalarType, module.getLoc(), named(ir::SlotKind::Scalar, "lr"));
  argument(scalarType, module.getLoc(), named(ir::SlotKind::Scalar, "step"));
  if (dividesByWeight())
    argument(scalarType, module.getLoc(), named(ir::SlotKind::Metric, "weight"));

  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, module.getLoc(), "update", b.getFunctionType(types, resultTypes));
  function.setAllArgAttrs(attributes);
  function.setAllResultAttrs(resultAttributes);
  Block *body = b.createBlock(&function.getBody(), {}, types, locations);
  b.setInsertionPointToEnd(body);

  size_t next = 0;
  for (Parameter &p : parameters)
    p.value = body->getArgument(next++);
  for (Parameter &p : parameters)
    p.gradient = body->getArgument(next++);
  for (Parameter &p : parameters)
    for (size_t i = 0; i < statesOf(settings).size(); ++i)
      p.states.push_back(body->getArgument(next++));
  if (lossScale)
    for (Value *state : {&scalars.lossScale, &scalars.cleanSteps, &scalars.skippedSteps})
      *state = body->getArgument(next++);
  scalars.lr = body->getArgument(next++);
  scalars.step = body->getArgument(next++);
  if (dividesByWeight())
    scalars.weight = body->getArgument(next++);
}

/// Sum of squares of all gradients: one term per parameter, added in order.
Value UpdateBuilder::squaredNorm() {
  Value total;
  for (Parameter &p : parameters) {
    originOf(p);
    Value gradient = e.toF32(p.gradient);
    Value term = e.sum(e.mul(gradient, gradient), dimsExcept(rankOf(gradient)));
    sharedOrigin();
    total = total ? e.add(total, term) : term;
  }
  return total;
}

/// 1 - beta^step. With T = tanh(step ln(beta) / 2) it is -2T / (1 - T), which is accurate even if beta^step is near 1.
Value UpdateBuilder::biasCorrection(double beta) {
  if (beta == 0)
    return scalar(1);
  Value t = e.tanh(e.scale(scalars.step, std::log(beta) / 2));
  return e.div(e.scale(t, -2), e.sub(scalar(1), t));
}

void UpdateBuilder::prepareScalars() {
  sharedOrigin();
  auto count = train->getAttrOfType<IntegerAttr>(ir::attr::staticCount);
  if (!count)
    throw userError("optimizer: @train has no cleave.static_count");
  // If no row counts, all gradients are zero, so any finite scale works.
  Value scale = dividesByWeight() ? e.div(scalar(static_cast<double>(count.getInt())), e.max(scalars.weight, scalar(1)))
                                  : scalar(1);
  Value squares = (settings.clip_norm > 0 || lossScale) && !parameters.empty() ? squaredNorm() : Value();
  if (lossScale) {
    scale = e.div(scale, scalars.lossScale);
    // The sum of squares is not finite if any gradient is infinite or NaN; sums of finite gradients stay far below the
    // limit.
    Value sum = squares ? squares : scalar(0);
    scalars.finite = e.compare(ir::Predicate::Le, sum, std::numeric_limits<float>::max());
    scalars.step = e.sub(scalars.step, scalars.skippedSteps); // Adam does not count skipped steps
  }
  if (settings.clip_norm > 0 && squares) {
    Value norm = e.mul(scale, e.sqrt(squares));
    Value clip = e.div(scalar(settings.clip_norm), e.shift(norm, 1e-6));
    scale = e.mul(scale, e.min(clip, scalar(1)));
  }
  scalars.gradientScale = scale;
  if (settings.ema > 0)
    scalars.firstStep = e.compare(ir::Predicate::Le, scalars.step, 1);
  scalars.stepSize = scalars.lr;
  if (settings.kind == plan::OptimizerKind::Sgd)
    return;
  scalars.stepSize = e.div(scalars.lr, biasCorrection(settings.beta1));
  scalars.inverseRootBiasCorrection = e.rsqrt(biasCorrection(settings.beta2));
}

/// Computes the values that parameters with equal settings share.
void UpdateBuilder::scaleSteps() {
  for (const Parameter &p : parameters) {
    Value &step = scalars.steps[p.lrScale()];
    if (!step)
      step = e.scale(scalars.stepSize, p.lrScale());
    if (settings.kind != plan::OptimizerKind::AdamW || decayOf(p) == 0)
      continue;
    Value &kept = scalars.kept[p.lrScale() * decayOf(p)];
    if (!kept)
      kept = e.sub(scalar(1), e.scale(scalars.lr, p.lrScale() * decayOf(p)));
  }
}

Value UpdateBuilder::update(Parameter &p) {
  Dims shape = p.type.getShape();
  Value gradient = e.mul(e.toF32(p.gradient), e.splat(scalars.gradientScale, shape)), before = p.value;
  llvm::SmallVector<Value> statesBefore = p.states;
  p.value = e.toF32(p.value);
  Value after = settings.kind == plan::OptimizerKind::Sgd ? sgd(p, gradient) : adam(p, gradient);
  if (settings.ema > 0) {
    Value &average = p.states.back();
    Value moved = e.add(average, e.scale(e.sub(after, average), 1 - settings.ema));
    average = e.select(e.splat(scalars.firstStep, shape), after, moved);
  }
  after = e.cast(after, p.type.getElementType());
  if (!lossScale)
    return after;
  Value finite = e.splat(scalars.finite, shape);
  for (auto [state, old] : llvm::zip_equal(p.states, statesBefore))
    state = e.select(finite, state, old);
  return e.select(finite, after, before);
}

/// Counts an applied step; the last of an interval doubles the scale up to its maximum. A skipped step halves it.
void UpdateBuilder::moveLossScale(llvm::SmallVector<Value> &results) {
  sharedOrigin();
  Value clean = e.shift(scalars.cleanSteps, 1), scale = scalars.lossScale;
  Value due = e.compare(ir::Predicate::Ge, clean, static_cast<double>(lossScale->growthInterval));
  Value grown = e.min(e.scale(scale, 2), scalar(LossScale::largest));
  Value next = e.select(scalars.finite, e.select(due, grown, scale), e.scale(scale, 0.5));
  results.push_back(lossScale->dynamic ? next : scale);
  results.push_back(e.select(scalars.finite, e.select(due, scalar(0), clean), scalar(0)));
  results.push_back(e.select(scalars.finite, scalars.skippedSteps, e.shift(scalars.skippedSteps, 1)));
}

/// g += decay p;  buf = momentum buf + g;  g = nesterov ? g + momentum buf : buf;  p -= lr g
Value UpdateBuilder::sgd(Parameter &p, Value gradient) {
  if (const double decay = decayOf(p); decay != 0)
    gradient = e.add(gradient, e.scale(p.value, decay));
  if (settings.momentum != 0) {
    Value &buffer = p.states[0];
    buffer = e.add(e.scale(buffer, settings.momentum), gradient);
    gradient = settings.nesterov ? e.add(gradient, e.scale(buffer, settings.momentum)) : buffer;
  }
  return e.sub(p.value, e.mul(e.splat(scalars.steps.at(p.lrScale()), p.type.getShape()), gradient));
}

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g;  p -= stepSize m / (sqrt(v) / sqrt(1 - beta2^t) + eps).
/// Adam adds decay p to g (L2), AdamW first multiplies p by 1 - lr decay (Loshchilov and Hutter 2019).
Value UpdateBuilder::adam(Parameter &p, Value gradient) {
  const Dims shape = p.type.getShape();
  const double decay = decayOf(p);
  Value value = p.value;
  if (decay != 0 && settings.kind == plan::OptimizerKind::Adam)
    gradient = e.add(gradient, e.scale(value, decay));
  if (decay != 0 && settings.kind == plan::OptimizerKind::AdamW)
    value = e.mul(value, e.splat(scalars.kept.at(p.lrScale() * decay), shape));
  Value &m = p.states[0], &v = p.states[1];
  m = e.add(e.scale(m, settings.beta1), e.scale(gradient, 1 - settings.beta1));
  v = e.add(e.scale(v, settings.beta2), e.scale(e.mul(gradient, gradient), 1 - settings.beta2));
  Value root = e.mul(e.sqrt(v), e.splat(scalars.inverseRootBiasCorrection, shape));
  Value step = e.splat(scalars.steps.at(p.lrScale()), shape);
  return e.sub(value, e.div(e.mul(step, m), e.shift(root, settings.eps)));
}

struct BuildOptimizerPass : ThrowingPass<impl::BuildOptimizerPassBase<BuildOptimizerPass>> {
  void work() override {
    ir::requirePhase(getOperation(), "build-optimizer", ir::Phase::Differentiated);
    buildOptimizer(getOperation());
  }
};

} // namespace

void buildOptimizer(ModuleOp module) {
  auto train = module.lookupSymbol<func::FuncOp>("train");
  if (!train)
    throw userError("optimizer: the module has no @train (differentiate first)");
  UpdateBuilder(module, train).build();
}

} // namespace cleave::passes
