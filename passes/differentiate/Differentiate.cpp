// Two sweeps: forwards to find values that depend on a trainable parameter, backwards to apply a rule to each op
// between the loss and them.
#include "passes/differentiate/Differentiate.h"

#include "ir/Phase.h"
#include "passes/differentiate/Rules.h"
#include "passes/precision/LossScale.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/simplify/Simplify.h"
#include "runtime/base/Error.h"

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_DIFFERENTIATEPASS
#define GEN_PASS_DEF_LEAVEUNTRAINEDPASS
#include "passes/Passes.h.inc"

static int64_t stageIn(Operation *op) {
  auto stage = op ? op->getAttrOfType<IntegerAttr>(ir::attr::stage) : IntegerAttr();
  return stage ? stage.getInt() : 0;
}

GraphBuilder Adjoints::builderOf(Value value, int64_t stage) const {
  GraphBuilder origin = e;
  if (Operation *producer = value.getDefiningOp())
    origin.setOrigin(producer);
  origin.setAttribute(ir::attr::phase, "backward");
  origin.setStage(stage);
  return origin;
}

void Adjoints::add(Value value, Value gradient) {
  assert(gradient.getType() == value.getType() && "a gradient has its value's type");
  const int64_t stage = e.stage(), from = stageIn(gradient.getDefiningOp());
  // An op of this stage passes on a gradient received from a later stage: relay it, so that it is sent on from this
  // stage.
  if (from != stage && (isa<BlockArgument>(value) || stageIn(value.getDefiningOp()) != stage)) {
    Value &relay = relays[{gradient, stage}];
    if (!relay) {
      GraphBuilder origin = builderOf(value, stage);
      relay = origin.op<ir::ShardHintOp>(
          gradient.getType(), gradient,
          origin.builder().getStrArrayAttr(llvm::SmallVector<llvm::StringRef>(rankOf(gradient), llvm::StringRef())));
    }
    gradient = relay;
  }
  auto &terms = gradients[value];
  auto term = llvm::find_if(terms, [&](const Term &t) { return t.stage == stage; });
  if (term == terms.end())
    terms.push_back({stage, gradient});
  else
    term->sum = builderOf(value, stage).add(term->sum, gradient);
}

Value Adjoints::gradientOf(Value value) {
  auto found = gradients.find(value);
  if (found == gradients.end())
    return {};
  auto &terms = found->second;
  const int64_t stage = value.getDefiningOp() ? stageIn(value.getDefiningOp()) : terms.back().stage;
  Value sum = terms.front().sum;
  for (const Term &term : llvm::drop_begin(terms))
    sum = builderOf(value, stage).add(sum, term.sum);
  terms = {{stage, sum}};
  return sum;
}

const RuleTable::Rule *RuleTable::find(Operation *op) const {
  auto found = rules.find(op->getName().getStringRef());
  return found == rules.end() ? nullptr : &found->second;
}

namespace {

bool isTrainable(func::FuncOp function, unsigned argument) {
  auto trainable = function.getArgAttrOfType<BoolAttr>(argument, ir::attr::trainable);
  return ir::argumentKind(function, argument) == ir::SlotKind::Parameter && trainable && trainable.getValue();
}

/// Whether a gradient propagates from this result to its op's operands.
bool carriesGradient(OpResult result) {
  if (!isFloat(result) || gradientRules().stopsAt(result.getOwner()))
    return false;
  auto loss = dyn_cast<ir::CrossEntropyOp>(result.getOwner());
  return !loss || result != loss.getWeight(); // the number of rows depends only on the labels
}

/// All values that depend on a trainable parameter.
llvm::DenseSet<Value> activeValues(func::FuncOp function) {
  llvm::DenseSet<Value> active;
  for (BlockArgument argument : function.getArguments())
    if (isTrainable(function, argument.getArgNumber()))
      active.insert(argument);
  for (Operation &op : function.front())
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return active.contains(operand); }))
      for (OpResult result : op.getResults())
        if (carriesGradient(result))
          active.insert(result);
  return active;
}

/// The results of a kind, in order.
llvm::SmallVector<unsigned> resultsOf(func::FuncOp function, ir::SlotKind kind) {
  llvm::SmallVector<unsigned> found;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (ir::resultKind(function, i) == kind)
      found.push_back(i);
  return found;
}

/// Keeps the results in `kept`, in order.
void keepResults(func::FuncOp function, llvm::ArrayRef<unsigned> kept) {
  Operation *terminator = function.front().getTerminator();
  llvm::SmallVector<Value> values;
  llvm::SmallVector<DictionaryAttr> attributes;
  for (const unsigned i : kept) {
    values.push_back(terminator->getOperand(i));
    attributes.push_back(function.getResultAttrDict(i));
  }
  terminator->setOperands(values);
  function.setType(
      FunctionType::get(function.getContext(), function.getArgumentTypes(), ValueRange(values).getTypes()));
  function.setAllResultAttrs(attributes);
}

/// Adds @weights: the weights of the loss's terms, computed from inputs alone, in the stage of the loss. The weight of
/// a cross-entropy does not depend on its logits.
void addWeights(ModuleOp module, func::FuncOp forward) {
  Operation *loss =
      forward.front().getTerminator()->getOperand(resultsOf(forward, ir::SlotKind::Loss).front()).getDefiningOp();
  auto weights = forward.clone();
  weights.setName("weights");
  weights->removeAttr(ir::attr::staticWeight);
  module.push_back(weights);
  keepResults(weights, resultsOf(weights, ir::SlotKind::Weight));
  weights.walk([&](ir::CrossEntropyOp op) {
    GraphBuilder e{OpBuilder(op)};
    e.setOrigin(op);
    op.getLogitsMutable().assign(e.constantLike(op.getLogits(), 0));
  });
  eraseDeadOps(weights);
  llvm::BitVector unused(weights.getNumArguments());
  for (BlockArgument argument : weights.getArguments()) {
    if (argument.use_empty())
      unused.set(argument.getArgNumber());
    else if (ir::argumentKind(argument) != ir::SlotKind::Input)
      throw userError(locationText(argument.getUsers().begin()->getLoc()) +
                      "error: the weights of a loss with several terms must depend on the data alone, one depends on " +
                      ir::argumentText(argument, ir::attr::name).str());
  }
  (void)weights.eraseArguments(unused);
  for (Operation &op : weights.front().without_terminator())
    for (StringRef name : {ir::attr::stage, ir::attr::layer})
      if (Attribute attribute = loss ? loss->getAttr(name) : Attribute())
        op.setAttr(name, attribute);
}

/// Replaces the results of kind Weight by arguments of kind Metric; returns these.
llvm::SmallVector<Value> takeWeights(func::FuncOp function) {
  Builder b(function.getContext());
  llvm::SmallVector<Value> weights;
  llvm::SmallVector<unsigned> kept;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (ir::resultKind(function, i) != ir::SlotKind::Weight) {
      kept.push_back(i);
      continue;
    }
    const std::string name = ir::metricName(ir::SlotKind::Weight, ir::resultText(function, i, ir::attr::name));
    const unsigned index = function.getNumArguments();
    auto attributes = b.getDictionaryAttr({b.getNamedAttr(ir::attr::kind, ir::kindAttr(b, ir::SlotKind::Metric)),
                                           b.getNamedAttr(ir::attr::name, b.getStringAttr(name))});
    (void)function.insertArgument(index, RankedTensorType::get({}, b.getF32Type()), attributes, function.getLoc());
    weights.push_back(function.getArgument(index));
  }
  keepResults(function, kept);
  return weights;
}

void applyRule(Operation *op, Adjoints &adjoints) {
  llvm::SmallVector<Value> grads;
  for (OpResult result : op->getResults())
    grads.push_back(adjoints.needs(result) ? adjoints.gradientOf(result) : Value());
  if (llvm::none_of(grads, [](Value grad) { return bool(grad); }))
    return;
  std::string where = locationText(op->getLoc()), name = op->getName().getStringRef().str();
  const RuleTable::Rule *rule = gradientRules().find(op);
  if (!rule)
    throw userError(where + "error: differentiate: " + name +
                    " has no gradient, but is between a trainable parameter and the loss");
  for (size_t i = 1; i < grads.size(); ++i)
    if (grads[i])
      throw userError(where + "error: differentiate: the loss depends on result " + std::to_string(i) + " of " + name +
                      ", which has no gradient");
  adjoints.e.setOrigin(op);
  adjoints.e.setAttribute(ir::attr::phase, "backward");
  (*rule)(op, grads, adjoints);
}

/// Appends the gradient ops to the body. `weights`: of the terms of the loss, in order; empty for a loss of one term,
/// whose gradients the update divides by the weight.
void appendBackward(func::FuncOp function, Adjoints &adjoints, double staticCount, llvm::ArrayRef<Value> weights,
                    Value lossScale) {
  llvm::SmallVector<Operation *> forward;
  for (Operation &op : function.front().without_terminator())
    forward.push_back(&op);
  GraphBuilder &e = adjoints.e;
  for (auto [i, result] : llvm::enumerate(resultsOf(function, ir::SlotKind::Loss))) {
    Value loss = function.front().getTerminator()->getOperand(result);
    if (!adjoints.needs(loss))
      continue;
    if (Operation *producer = loss.getDefiningOp())
      e.setOrigin(producer);
    e.setAttribute(ir::attr::phase, "backward");
    // If no element counts, the gradient is zero, so any finite seed works.
    Value seed = weights.empty() ? e.constantLike(loss, 1 / staticCount)
                                 : e.div(e.constantLike(loss, 1), e.max(weights[i], e.constantLike(loss, 1)));
    adjoints.add(loss, lossScale ? e.mul(seed, lossScale) : seed);
  }
  for (Operation *op : llvm::reverse(forward))
    applyRule(op, adjoints);
}

/// The argument that holds the loss scale; null if the module has none.
Value lossScaleArgument(ModuleOp module, func::FuncOp function) {
  std::optional<LossScale> scale = lossScaleOf(module);
  if (!scale)
    return {};
  Builder b(module.getContext());
  const unsigned index = function.getNumArguments();
  auto attributes = b.getDictionaryAttr(
      {b.getNamedAttr(ir::attr::kind, ir::kindAttr(b, ir::SlotKind::State)),
       b.getNamedAttr(ir::attr::name, b.getStringAttr(lossScaleState)),
       b.getNamedAttr(ir::attr::init, ir::InitAttr::get(b.getContext(), "constant", scale->initial, 0.0))});
  (void)function.insertArgument(index, RankedTensorType::get({}, b.getF32Type()), attributes, function.getLoc());
  return function.getArgument(index);
}

/// The gradient of a parameter from which nothing is left between it and the loss.
Value zeroGradient(BlockArgument parameter, Adjoints &adjoints) {
  adjoints.e.setOrigin(parameter.use_empty() ? &parameter.getOwner()->front() : *parameter.user_begin());
  adjoints.e.setAttribute(ir::attr::phase, "backward");
  return adjoints.e.constantLike(parameter, 0);
}

/// Appends a result of kind Gradient for every trainable parameter.
void returnGradients(func::FuncOp function, Adjoints &adjoints) {
  Operation *terminator = function.front().getTerminator();
  auto results = llvm::to_vector(terminator->getOperands());
  llvm::SmallVector<DictionaryAttr> attributes;
  for (unsigned i = 0; i < results.size(); ++i)
    attributes.push_back(function.getResultAttrDict(i));
  OpBuilder &b = adjoints.e.builder();
  for (BlockArgument argument : function.getArguments()) {
    if (!isTrainable(function, argument.getArgNumber()))
      continue;
    Value gradient = adjoints.gradientOf(argument);
    results.push_back(gradient ? gradient : zeroGradient(argument, adjoints));
    attributes.push_back(b.getDictionaryAttr(
        {b.getNamedAttr(ir::attr::kind, ir::kindAttr(b, ir::SlotKind::Gradient)),
         b.getNamedAttr(ir::attr::name, function.getArgAttr(argument.getArgNumber(), ir::attr::name)),
         b.getNamedAttr(ir::attr::trainable, function.getArgAttr(argument.getArgNumber(), ir::attr::trainable))}));
  }
  terminator->setOperands(results);
  function.setType(b.getFunctionType(function.getArgumentTypes(), ValueRange(results).getTypes()));
  function.setAllResultAttrs(attributes);
}

struct DifferentiatePass : ThrowingPass<impl::DifferentiatePassBase<DifferentiatePass>> {
  using ThrowingPass::ThrowingPass;

  void work() override {
    ir::requirePhase(getOperation(), "differentiate", ir::Phase::Traced);
    differentiate(getOperation(), microbatches);
  }
};

struct LeaveUntrainedPass : ThrowingPass<impl::LeaveUntrainedPassBase<LeaveUntrainedPass>> {
  void work() override { leaveUntrained(getOperation()); }
};

} // namespace

std::vector<std::string> parametersWithoutGradient(func::FuncOp forward) {
  const llvm::DenseSet<Value> active = activeValues(forward);
  llvm::DenseSet<Value> reached;
  llvm::SmallVector<Value> open;
  const auto visit = [&](Value value) {
    if (active.contains(value) && reached.insert(value).second)
      open.push_back(value);
  };
  for (const unsigned loss : resultsOf(forward, ir::SlotKind::Loss))
    visit(forward.front().getTerminator()->getOperand(loss));
  while (!open.empty())
    if (Operation *op = open.pop_back_val().getDefiningOp())
      llvm::for_each(op->getOperands(), visit);
  std::vector<std::string> names;
  for (BlockArgument argument : forward.getArguments())
    if (isTrainable(forward, argument.getArgNumber()) && !reached.contains(argument))
      names.push_back(ir::argumentText(argument, ir::attr::name).str());
  return names;
}

void leaveUntrained(ModuleOp module) {
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  if (!forward)
    return;
  llvm::StringSet<> without;
  for (const std::string &name : parametersWithoutGradient(forward))
    without.insert(name);
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments())
      if (ir::argumentKind(argument) == ir::SlotKind::Parameter &&
          without.contains(ir::argumentText(argument, ir::attr::name)))
        function.removeArgAttr(argument.getArgNumber(), ir::attr::trainable);
}

void differentiate(ModuleOp module, int64_t microbatches) {
  auto function = module.lookupSymbol<func::FuncOp>("forward");
  if (!function)
    throw userError("differentiate: the module has no @forward");
  auto weight = function->getAttrOfType<IntegerAttr>(ir::attr::staticWeight);
  if (!weight || weight.getInt() < 1 || microbatches < 1)
    throw userError("differentiate: @forward needs cleave.static_weight >= 1, and microbatches must be at least 1");
  const bool terms = resultsOf(function, ir::SlotKind::Loss).size() > 1;
  if (terms)
    addWeights(module, function);
  const llvm::SmallVector<Value> weights = terms ? takeWeights(function) : llvm::SmallVector<Value>();
  OpBuilder builder(function.front().getTerminator());
  int64_t staticCount = weight.getInt() * microbatches;
  Adjoints adjoints(builder, activeValues(function));
  appendBackward(function, adjoints, static_cast<double>(staticCount), weights, lossScaleArgument(module, function));
  returnGradients(function, adjoints);
  function.setName("train");
  function->setAttr(ir::attr::staticCount, builder.getI64IntegerAttr(staticCount));
}

} // namespace cleave::passes
