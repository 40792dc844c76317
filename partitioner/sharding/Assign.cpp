// One walk in program order. A parameter or buffer stays *open* until its first use decides how it lies; constants and
// broadcasts are made anew under the sharding their user wants; all other disagreements become dist.reshard.
#include "partitioner/sharding/Assign.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/sharding/Heads.h"
#include "partitioner/sharding/Pinned.h"
#include "partitioner/sharding/Reshape.h"
#include "partitioner/sharding/Rules.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {

static std::vector<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape().vec(); }

dist::ShardingAttr shardingAttrOf(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func.getArgAttrOfType<dist::ShardingAttr>(argument.getArgNumber(), dist::attr::sharding);
  }
  auto all = value.getDefiningOp()->getAttrOfType<ArrayAttr>(dist::attr::shardings);
  return all ? cast<dist::ShardingAttr>(all[cast<OpResult>(value).getResultNumber()]) : nullptr;
}

const Sharding &shardingOf(Value value) {
  dist::ShardingAttr attribute = shardingAttrOf(value);
  const Sharding *sharding = attribute ? attribute.forType(value.getType()) : nullptr;
  if (!sharding)
    throw Error(Status::Internal, fmt::format("sharding \"{}\" does not fit its tensor of {} dimensions",
                                              attribute ? attribute.getText().str() : "none", shapeOf(value).size()));
  return *sharding;
}

namespace {

class Assigner {
public:
  Assigner(func::FuncOp func, const Strategy &strategy, NamedShardings &named)
      : func(func), strategy(strategy), mesh(strategy.mesh), named(named), builder(func.getContext()) {}

  void run() {
    for (BlockArgument argument : func.getArguments())
      visitArgument(argument);
    std::vector<Operation *> ops;
    for (Operation &op : func.getBody().front().without_terminator())
      ops.push_back(&op);
    shardings.reserve(2 * ops.size());
    for (Operation *op : ops)
      visit(op);
    visitReturn();
    mergeSums();
    annotate();
  }

private:
  func::FuncOp func;
  const Strategy &strategy;
  const Mesh &mesh;
  NamedShardings &named;
  OpBuilder builder;
  ShardingSet kept;
  DenseMap<Value, const Sharding *> shardings;
  DenseMap<Value, std::string> open; // undecided arguments and their names
  DenseSet<Value> waiting;           // what arguments were cast or transposed to: they lie as those do once decided
  std::map<std::pair<void *, std::string>, Value> resharded;
  std::map<std::string, std::vector<unsigned>> gradientResults; // by parameter

  const Sharding &of(Value value) const {
    static const Sharding none;
    const Sharding *found = shardings.lookup(value);
    return found ? *found : none;
  }
  void set(Value value, Sharding sharding) { shardings[value] = kept.add(std::move(sharding)); }

  void visitArgument(BlockArgument argument) {
    unsigned index = argument.getArgNumber();
    std::string kind = ir::argumentText(func, index, ir::attr::kind).str(),
                name = ir::argumentText(func, index, ir::attr::name).str();
    std::vector<int64_t> shape = shapeOf(argument);
    Sharding sharding = Sharding::replicated(shape);
    if (kind == "input" && mesh.size("dp") > 1 && !shape.empty()) {
      if (shape[0] < mesh.size("dp"))
        throw userError(
            fmt::format("mesh: a microbatch has {} rows, fewer than dp = {} (batch / microbatches must be at least dp)",
                        shape[0], mesh.size("dp")));
      sharding.dims[0].factors[0].axes = {"dp"};
    } else if (kind == "gradient" || kind == "state") {
      sharding = ofParameter(name, kind == "state", shape);
    } else if (kind == "parameter" || kind == "buffer") {
      auto known = named.find(name);
      if (known != named.end())
        sharding = known->second;
      else if (auto pinned = pinnedSharding(name, shape, strategy, [&] { return headsOf(argument); })) {
        pinned->normalise(mesh);
        named[name] = sharding = *pinned;
      } else
        open[argument] = name;
    }
    set(argument, std::move(sharding));
  }

  // A gradient lies as its parameter; a state "<parameter>.<slot>" as its parameter where shapes agree.
  Sharding ofParameter(const std::string &name, bool state, const std::vector<int64_t> &shape) {
    auto known = named.find(state ? name.substr(0, name.rfind('.')) : name);
    return known != named.end() && known->second.dims.size() == shape.size() ? known->second
                                                                             : Sharding::replicated(shape);
  }

  // ---- uses --------------------------------------------------------------------------------------------------------

  // A parameter in another type or with its dimensions in another order is decided with the parameter.
  static Value sourceOf(Value value) {
    Operation *def = value.getDefiningOp();
    return isa_and_present<ir::CastOp, ir::TransposeOp>(def) ? def->getOperand(0) : Value();
  }

  static Value rootOf(Value value) {
    while (Value source = sourceOf(value))
      value = source;
    return value;
  }

  // How a value lies whose root lies so, and the reverse.
  static Sharding fromRoot(Value value, const Sharding &root) {
    Value source = sourceOf(value);
    if (!source)
      return root;
    Sharding from = fromRoot(source, root), sharding = from;
    if (auto transpose = value.getDefiningOp<ir::TransposeOp>())
      for (auto [d, dim] : llvm::enumerate(transpose.getPermutation()))
        sharding.dims[d] = from.dims[dim];
    return sharding;
  }

  static Sharding toRoot(Value value, const Sharding &sharding) {
    Value source = sourceOf(value);
    if (!source)
      return sharding;
    Sharding to = sharding;
    if (auto transpose = value.getDefiningOp<ir::TransposeOp>())
      for (auto [d, dim] : llvm::enumerate(transpose.getPermutation()))
        to.dims[dim] = sharding.dims[d];
    return toRoot(source, to);
  }

  bool isOpen(Value value) {
    Value root = rootOf(value);
    bool undecided = open.contains(root);
    if (!undecided && root != value && waiting.erase(value))
      set(value, fromRoot(value, of(root)));
    return undecided;
  }

  // Decides an open argument, or what it became.
  void close(Value value, const Sharding &sharding) {
    Value argument = rootOf(value);
    set(value, sharding);
    set(argument, toRoot(value, sharding));
    named[open[argument]] = of(argument);
    waiting.erase(value);
    open.erase(argument);
  }

  static Sharding operandOf(ir::BroadcastOp op, const Sharding &result) {
    Sharding operand;
    for (int64_t d : op.getDims())
      operand.dims.push_back(result.dims[d]);
    return operand;
  }

  // A broadcast of an open argument takes what it needs when it is used as it is: it decides the argument, or, where
  // another use has decided otherwise since, takes it under the sharding that its own result has.
  void settle(Value value, const Sharding &sharding) {
    auto op = value.getDefiningOp<ir::BroadcastOp>();
    if (!op)
      return;
    Value source = use(op.getInput(), operandOf(op, sharding), op);
    op.getInputMutable().assign(source);
    if (Operation *def = source.getDefiningOp(); def && op->isBeforeInBlock(def))
      op->moveAfter(def); // its users are still to come
  }

  Operation *cloneFree(Operation *op, const Sharding &sharding) {
    builder.setInsertionPointAfter(op);
    Operation *copy = builder.clone(*op);
    set(copy->getResult(0), sharding);
    return copy;
  }

  static std::string place(Operation *op) {
    auto stage = op->getAttrOfType<IntegerAttr>(ir::attr::stage);
    return fmt::format("{}{}", stage ? stage.getInt() : -1, op->hasAttr(ir::attr::phase) ? "b" : "f");
  }

  // The value under `required`, for `user`.
  Value use(Value value, const Sharding &required, Operation *user) {
    if (isOpen(value)) { // and settles what waited for its argument
      close(value, required);
      return value;
    }
    const Sharding &current = of(value);
    if (current == required) {
      settle(value, required);
      return value;
    }
    if (current.partialAxes != required.partialAxes && !current.partialAxes.empty()) {
      Sharding whole = current;
      whole.partialAxes = required.partialAxes;
      whole.partialKind = required.partialKind;
      value = reshard(value, whole, value.getDefiningOp() ? value.getDefiningOp() : user, true);
      return use(value, required, user);
    }
    Operation *def = value.getDefiningOp();
    std::pair<void *, std::string> key{value.getAsOpaquePointer(), "free " + required.str() + sizes(required)};
    if (def && isRemakeable(value)) {
      if (auto known = resharded.find(key); known != resharded.end())
        return known->second;
      return resharded[key] = remake(def, required);
    }
    return reshard(value, required, user, false);
  }

  // Constants, indices, broadcasts, and elementwise ops of nothing else (a mask, for example).
  static bool isRemakeable(Value value) {
    Operation *def = value.getDefiningOp();
    if (!def || isFree(def) || isa<ir::BroadcastOp>(def))
      return def;
    return def->hasTrait<OpTrait::Elementwise>() && llvm::all_of(def->getOperands(), isRemakeable);
  }

  // The same op once more, its result under `required`.
  Value remake(Operation *def, const Sharding &required) {
    Operation *copy = cloneFree(def, required);
    for (unsigned i = 0; i < def->getNumOperands(); ++i) {
      auto broadcast = dyn_cast<ir::BroadcastOp>(def);
      Value source = use(def->getOperand(i), broadcast ? operandOf(broadcast, required) : required, def);
      copy->setOperand(i, source);
      if (Operation *sourceDef = source.getDefiningOp(); sourceDef && copy->isBeforeInBlock(sourceDef))
        copy->moveAfter(sourceDef);
    }
    return copy->getResult(0);
  }

  static std::string sizes(const Sharding &sharding) {
    std::string text;
    for (const DimSharding &dim : sharding.dims)
      for (const Factor &factor : dim.factors)
        text += fmt::format(" {}", factor.size);
    return text;
  }

  // A dist.reshard beside the definition (sums are finished where they are made) or before the user.
  Value reshard(Value value, const Sharding &to, Operation *where, bool atDefinition) {
    if (auto pool = value.getDefiningOp<ir::MaxPool2dOp>(); pool && pool.getWorkspace() == value)
      throw Error(Status::Internal, "the workspace of a max-pool cannot be split otherwise");
    std::pair<void *, std::string> key{value.getAsOpaquePointer(), place(where) + to.str() + sizes(to)};
    if (auto known = resharded.find(key); known != resharded.end())
      return known->second;
    if (atDefinition && value.getDefiningOp())
      builder.setInsertionPointAfter(value.getDefiningOp());
    else
      builder.setInsertionPoint(where);
    auto *context = func.getContext();
    auto op = dist::ReshardOp::create(builder, where->getLoc(), value.getType(), value,
                                      dist::ShardingAttr::get(context, of(value).str()),
                                      dist::ShardingAttr::get(context, to.str()));
    for (StringRef name : {ir::attr::path, ir::attr::stage, ir::attr::phase, llvm::StringLiteral("cleave.parameter")})
      if (Attribute attribute = where->getAttr(name))
        op->setAttr(name, attribute);
    set(op.getResult(), to);
    return resharded[key] = op.getResult();
  }

  // ---- ops ---------------------------------------------------------------------------------------------------------

  void visit(Operation *op) {
    if (isa<ir::CastOp, ir::TransposeOp>(op) && isOpen(op->getOperand(0))) {
      waiting.insert(op->getResult(0));
      set(op->getResult(0), Sharding::replicated(shapeOf(op->getResult(0))));
    } else if (isFree(op)) {
      set(op->getResult(0), Sharding::replicated(shapeOf(op->getResult(0))));
    } else if (auto reshape = dyn_cast<ir::ReshapeOp>(op)) {
      visitReshape(reshape);
    } else if (auto broadcast = dyn_cast<ir::BroadcastOp>(op); broadcast && openBroadcast(broadcast)) {
      set(broadcast.getResult(), Sharding::replicated(shapeOf(broadcast.getResult())));
    } else {
      visitByRule(op, *shardingRule(op));
    }
  }

  bool openBroadcast(ir::BroadcastOp op) {
    if (isOpen(op.getInput()))
      return true;
    auto inner = op.getInput().getDefiningOp<ir::BroadcastOp>();
    return inner && openBroadcast(inner);
  }

  void visitReshape(ir::ReshapeOp op) {
    Value input = op.getInput();
    Sharding required = of(input);
    if (!required.partialAxes.empty() && !(required.partialKind == "sum" && input.hasOneUse()))
      required.partialAxes.clear();
    Sharding result = reshapeOrGather(required, shapeOf(input), shapeOf(op.getResult()), mesh);
    op->setOperand(0, use(input, required, op));
    set(op.getResult(), std::move(result));
  }

  static bool isSplat(Value value) {
    if (auto broadcast = value.getDefiningOp<ir::BroadcastOp>())
      return isSplat(broadcast.getInput());
    auto constant = value.getDefiningOp<ir::ConstantOp>();
    return constant && constant.getValue().isSplat();
  }

  // The cast of a gradient that a half type's product made to its parameter's f32. It passes partial sums on, which
  // are then added up over the microbatches, and summed over the ranks once an iteration, in f32. (Elsewhere a cast
  // does not: the sum would travel in the wider type.)
  static bool widensGradient(Operation *op) {
    auto cast = dyn_cast<ir::CastOp>(op);
    auto width = [](Value value) { return getElementTypeOrSelf(value).getIntOrFloatBitWidth(); };
    return cast && op->hasAttr(ir::attr::phase) && width(cast.getResult()) > width(cast.getInput()) &&
           isa<FloatType>(getElementTypeOrSelf(cast.getInput())) && isGradientTerm(cast.getResult());
  }

  static bool isGradientTerm(Value value) {
    return llvm::all_of(value.getUsers(), [](Operation *user) {
      return isa<func::ReturnOp>(user) || (isa<ir::AddOp>(user) && isGradientTerm(user->getResult(0)));
    });
  }

  // Axes over which the op's operands are partial sums that it may pass on unreduced. Only single uses pass, or a value
  // would be reduced once for itself and once for what it passed into.
  std::vector<std::string> passedAxes(Operation *op, const OpRule &rule) {
    std::vector<std::string> axes;
    bool scale = isa<ir::MulOp>(op) || isa<ir::DivOp>(op);
    if (!rule.linear && !scale && !widensGradient(op))
      return {};
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      Value operand = op->getOperand(i);
      if (scale && isSplat(operand) && !(isa<ir::DivOp>(op) && i == 0))
        continue;
      const Sharding &sharding = of(operand);
      if (isOpen(operand) || sharding.partialAxes.empty() || sharding.partialKind != "sum" || !operand.hasOneUse())
        return {};
      if (!axes.empty() && axes != sharding.partialAxes)
        return {};
      axes = sharding.partialAxes;
    }
    bool bothVary = scale && !isSplat(op->getOperand(0)) && !isSplat(op->getOperand(1));
    return bothVary ? std::vector<std::string>{} : axes;
  }

  using Choice = std::vector<DimSharding>; // per factor; no factors: not split

  static bool usesAxis(const Choice &choice, const std::string &axis) {
    for (const DimSharding &dim : choice)
      for (const Factor &factor : dim.factors)
        if (llvm::is_contained(factor.axes, axis))
          return true;
    return false;
  }

  // How each of a dimension's runs is split; nothing where the split is not the same in all of them.
  static std::optional<DimSharding> oneRun(const DimSharding &dim, int64_t runs) {
    const Factor &first = dim.factors.front();
    if (runs == 1)
      return dim;
    if (!first.axes.empty() || first.size % runs != 0)
      return std::nullopt;
    DimSharding run = dim;
    run.factors.front().size /= runs;
    return run;
  }

  static DimSharding inRuns(DimSharding run, int64_t runs) {
    if (runs > 1)
      run.factors.insert(run.factors.begin(), Factor{runs, {}});
    return run;
  }

  // Takes a candidate for a factor unless the factor is split already or an axis is in use.
  static void propose(Choice &choice, int factor, const DimSharding &candidate,
                      const std::vector<std::string> &passed) {
    if (!candidate.split() || choice[factor].split())
      return;
    for (const Factor &part : candidate.factors)
      for (const std::string &axis : part.axes)
        if (usesAxis(choice, axis) || llvm::is_contained(passed, axis))
          return;
    choice[factor] = candidate;
  }

  bool isParameter(Value value) {
    auto argument = dyn_cast<BlockArgument>(rootOf(value));
    return argument && named.count(ir::argumentText(argument, ir::attr::name).str());
  }

  Choice chooseFactors(Operation *op, const OpRule &rule, const std::vector<std::string> &passed) {
    Choice choice(rule.factors.size());
    if (auto hint = dyn_cast<ir::ShardHintOp>(op)) {
      applyHint(hint, rule, choice);
      return choice;
    }
    auto take = [&](unsigned i, auto wanted) {
      const Sharding &sharding = of(op->getOperand(i));
      for (auto [d, dim] : llvm::enumerate(rule.operands[i]))
        if (auto run = oneRun(sharding.dims[d], dim.runs);
            run && rule.factors[dim.factor] != FactorKind::Whole && wanted(*run))
          propose(choice, dim.factor, *run, passed);
    };
    auto any = [](const DimSharding &) { return true; };
    auto overRows = [](const DimSharding &dim) {
      return llvm::any_of(dim.factors, [](const Factor &f) { return llvm::is_contained(f.axes, "dp"); });
    };
    if (auto pool =
            dyn_cast<ir::MaxPool2dGradOp>(op)) { // the workspace is in a library's own form: all else goes by it
      take(pool.getWorkspaceMutable().getOperandNumber(), any);
      return choice;
    }
    // What lies decided in memory moves last; but a parameter stored split over dp is gathered for the rows that dp
    // splits.
    auto each = [&](bool parameters, auto wanted) {
      for (unsigned i = 0; i < op->getNumOperands(); ++i)
        if (!isOpen(op->getOperand(i)) && isParameter(op->getOperand(i)) == parameters)
          take(i, wanted);
    };
    each(true, [&](const DimSharding &dim) { return !overRows(dim); });
    each(false, any);
    each(true, any);
    chooseDefault(op, rule, choice, passed);
    if (auto grad = dyn_cast<ir::EmbeddingGradOp>(op))
      if (const Sharding *parameter = gradientTarget(grad.getResult()))
        propose(choice, rule.results[0][0].factor, parameter->dims[0], passed);
    return choice;
  }

  // Tensor parallelism by default: an undecided weight is split by its output (by heads where attention follows), an
  // embedding by its rows, unless the input's split already made it row parallel (Shoeybi et al. 2019).
  void chooseDefault(Operation *op, const OpRule &rule, Choice &choice, const std::vector<std::string> &passed) {
    int64_t tp = mesh.size("tp");
    if (tp == 1 || rule.defaultFactor < 0 || !isOpen(op->getOperand(rule.parameterOperand)) || usesAxis(choice, "tp"))
      return;
    const size_t d = dimOf(rule.operands[rule.parameterOperand], rule.defaultFactor);
    int64_t size = shapeOf(op->getOperand(rule.parameterOperand))[d];
    if (size < tp)
      return;
    DimSharding split{{{size, {"tp"}}}};
    if (rule.factors[rule.defaultFactor] == FactorKind::Parallel)
      split = defaultSplit(op->getResult(0), dimOf(rule.results[0], rule.defaultFactor), "tp", tp);
    propose(choice, rule.defaultFactor, split, passed);
  }

  // Dimensions marked "" stay as they are unless the mark needs their axes elsewhere.
  void applyHint(ir::ShardHintOp hint, const OpRule &rule, Choice &choice) {
    std::vector<int64_t> shape = shapeOf(hint.getResult());
    auto entries = llvm::to_vector(hint.getSharding().getAsValueRange<StringAttr>());
    Sharding marked = Sharding::replicated(shape);
    std::string where = "withSharding";
    if (auto line = dyn_cast<FileLineColLoc>(hint.getLoc()))
      where = fmt::format("{}:{}: withSharding", line.getFilename().str(), line.getLine());
    for (auto [d, entry] : llvm::enumerate(entries))
      if (!entry.empty() && entry != ir::wholeDimension)
        choice[rule.results[0][d].factor] = marked.dims[d] = parseAxesSplit(entry.str(), shape[d], mesh, where);
    refuseRepeatedAxes(marked, where);
    if (isOpen(hint.getInput()))
      return;
    for (auto [d, entry] : llvm::enumerate(entries))
      if (entry.empty())
        propose(choice, rule.results[0][d].factor, of(hint.getInput()).dims[d], {});
  }

  // The parameter whose gradient a value becomes, through additions.
  const Sharding *gradientTarget(Value value) {
    for (OpOperand &use : value.getUses()) {
      if (isa<func::ReturnOp>(use.getOwner())) {
        auto name = func.getResultAttrOfType<StringAttr>(use.getOperandNumber(), ir::attr::name);
        auto known = name ? named.find(name.str()) : named.end();
        if (known != named.end())
          return &known->second;
      } else if (isa<ir::AddOp>(use.getOwner())) {
        if (const Sharding *found = gradientTarget(use.getOwner()->getResult(0)))
          return found;
      }
    }
    return nullptr;
  }

  Sharding fromChoice(const Choice &choice, const OpRule &rule, const std::vector<RuleDim> &dims,
                      const std::vector<int64_t> &shape) {
    Sharding sharding = Sharding::replicated(shape);
    for (auto [d, dim] : llvm::enumerate(dims))
      if (rule.factors[dim.factor] != FactorKind::Whole && choice[dim.factor].split())
        sharding.dims[d] = inRuns(choice[dim.factor], dim.runs);
    sharding.normalise(mesh);
    return sharding;
  }

  void visitByRule(Operation *op, const OpRule &rule) {
    std::vector<std::string> passed = passedAxes(op, rule);
    Choice choice = chooseFactors(op, rule, passed);
    llvm::erase_if(passed,
                   [&](const std::string &axis) { return usesAxis(choice, axis); }); // a mark splits what is summed
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      Value operand = op->getOperand(i);
      Sharding required = fromChoice(choice, rule, rule.operands[i], shapeOf(operand));
      if (!passed.empty() && llvm::includes(of(operand).partialAxes, passed))
        required.partialAxes = passed;
      op->setOperand(i, use(operand, required, op));
    }
    for (auto [r, result] : llvm::enumerate(op->getResults())) {
      Sharding sharding = fromChoice(choice, rule, rule.results[r], shapeOf(result));
      sharding.partialAxes = passed;
      const std::vector<RuleDim> &dims = rule.results[r];
      for (auto [f, kind] : llvm::enumerate(rule.factors))
        if (kind != FactorKind::Parallel && kind != FactorKind::Whole && dimOf(dims, f) == dims.size())
          for (const Factor &part : choice[f].factors)
            for (const std::string &axis : part.axes) {
              sharding.partialAxes.push_back(axis);
              sharding.partialKind = kind == FactorKind::Max ? "max" : kind == FactorKind::Min ? "min" : "sum";
            }
      llvm::sort(sharding.partialAxes);
      set(result, std::move(sharding));
    }
  }

  void visitReturn() {
    Operation *terminator = func.getBody().front().getTerminator();
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i)
      if (ir::resultText(func, i, ir::attr::kind) == "gradient")
        gradientResults[ir::resultText(func, i, ir::attr::name).str()].push_back(i);
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i) {
      Value value = terminator->getOperand(i);
      std::string kind = ir::resultText(func, i, ir::attr::kind).str(),
                  name = ir::resultText(func, i, ir::attr::name).str();
      Sharding required = Sharding::replicated(shapeOf(value));
      if (kind == "gradient" || kind == "parameter" || kind == "state")
        required = ofParameter(name, kind == "state", shapeOf(value));
      else if (kind == "buffer" && named.count(name))
        required = named[name];
      if (kind == "gradient" || kind == "loss" || kind == "weight" || kind == "correct") {
        required.partialAxes = of(value).partialAxes;
        required.partialKind = of(value).partialKind;
      }
      if (kind == "gradient") // finished once an iteration over what all its stages leave partial and the parameter is
                              // not split by
        llvm::erase_if(required.partialAxes, [&, axes = partialInAllStages(name)](const std::string &axis) {
          return !llvm::is_contained(axes, axis) || required.splitsOver(axis);
        });
      Value taken = use(value, required, value.getDefiningOp() ? lastOp() : terminator);
      if (kind == "gradient") // what finishes a parameter's gradient says so
        for (Value v = taken; v != value && v.getDefiningOp<dist::ReshardOp>(); v = v.getDefiningOp()->getOperand(0))
          v.getDefiningOp()->setAttr(ir::attr::path, builder.getStringAttr("gradients"));
      terminator->setOperand(i, taken);
    }
    for (Value value : llvm::to_vector(llvm::make_first_range(open)))
      close(value, of(value));
    for (Value value : llvm::to_vector(waiting))
      isOpen(value);
  }

  // A sum that is finished only to be split the same way by every user is finished split: a reduce-scatter (Rajbhandari
  // et al. 2020; Korthikanti et al. 2022). With other users the whole sum is there anyway, and each share a slice of
  // it.
  void mergeSums() {
    SmallVector<dist::ReshardOp> sums(func.getOps<dist::ReshardOp>());
    SmallPtrSet<Operation *, 8> merged;
    for (dist::ReshardOp sum : sums) {
      if (merged.contains(sum))
        continue;
      const Sharding &partial = of(sum.getInput());
      if (partial.partialAxes.empty() || sum->use_empty())
        continue;
      const Sharding *wanted = nullptr;
      bool same = llvm::all_of(sum->getUsers(), [&](Operation *user) {
        if (!isa<dist::ReshardOp>(user))
          return false;
        const Sharding &to = of(user->getResult(0));
        bool fits = !wanted || *wanted == to;
        wanted = &to;
        return fits;
      });
      if (!same || !scatterPlace(mesh, partial, *wanted))
        continue;
      Sharding to = *wanted;
      for (Operation *user : llvm::make_early_inc_range(sum->getUsers())) {
        user->getResult(0).replaceAllUsesWith(sum.getResult());
        merged.insert(user);
        user->erase();
      }
      sum.setToAttr(dist::ShardingAttr::get(func.getContext(), to.str()));
      set(sum.getResult(), to);
    }
  }

  // Axes over which every term of a parameter's gradient is partial (a tied parameter has a term in each of its
  // stages).
  std::vector<std::string> partialInAllStages(const std::string &name) {
    std::optional<std::vector<std::string>> common;
    for (unsigned result : gradientResults[name]) {
      const std::vector<std::string> &axes = of(func.getBody().front().getTerminator()->getOperand(result)).partialAxes;
      if (common)
        llvm::erase_if(*common, [&](const std::string &axis) { return !llvm::is_contained(axes, axis); });
      else
        common = axes;
    }
    return common.value_or(std::vector<std::string>());
  }

  // Where a reshard of a result goes: after everything, with the stage and phase of the value's own op.
  Operation *lastOp() { return func.getBody().front().getTerminator(); }

  void annotate() {
    auto *context = func.getContext();
    DenseMap<const Sharding *, Attribute> texts;
    auto textOf = [&](Value value) {
      Attribute &text = texts[shardings.lookup(value)];
      return text ? text : text = dist::ShardingAttr::get(context, of(value).str());
    };
    SmallVector<DictionaryAttr> ofArguments;
    for (BlockArgument argument : func.getArguments()) {
      NamedAttrList attributes(function_interface_impl::getArgAttrs(func, argument.getArgNumber()));
      attributes.set(dist::attr::sharding, textOf(argument));
      ofArguments.push_back(attributes.getDictionary(context));
    }
    func.setAllArgAttrs(ofArguments);
    func.walk([&](Operation *op) {
      if (op->getNumResults() == 0 || op == func.getOperation())
        return;
      op->setAttr(dist::attr::shardings,
                  ArrayAttr::get(context, llvm::to_vector(llvm::map_range(op->getResults(), textOf))));
    });
    terminateReshards();
  }

  // Reshards before the return carry no stage yet: they take the one of what they reshard.
  void terminateReshards() {
    func.walk([&](dist::ReshardOp op) {
      Operation *def = op.getInput().getDefiningOp();
      if (!def || op->hasAttr(ir::attr::stage))
        return;
      for (StringRef name : {ir::attr::path, ir::attr::stage, ir::attr::phase, llvm::StringLiteral("cleave.parameter")})
        if (def->hasAttr(name) && !op->hasAttr(name))
          op->setAttr(name, def->getAttr(name));
    });
  }
};

} // namespace

void assignShardings(func::FuncOp func, const Strategy &strategy, NamedShardings &named) {
  Assigner(func, strategy, named).run();
}

} // namespace cleave::partitioner
