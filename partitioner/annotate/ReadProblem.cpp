// Reads the ops before the demands of arguments, marks and results, because heads are found by looking ahead over the
// ops.
#include "partitioner/annotate/ReadProblem.h"

#include "ir/graph/Graph.h"
#include "partitioner/annotate/RuleOf.h"
#include "partitioner/sharding/Heads.h"
#include "partitioner/stages/Layers.h"
#include "runtime/base/Error.h"

#include <fmt/format.h>

using namespace mlir;

namespace cleave::partitioner {
namespace {

class Reader {
public:
  Reader(func::FuncOp func, const Decisions &strategy, const NamedShardings &named, Marks demands)
      : func(func), strategy(strategy), named(named), demands(demands) {
    problem.mesh = strategy.mesh;
    problem.sequence = !strategy.sequence.empty();
  }

  ShardingProblem read() {
    for (BlockArgument argument : func.getArguments())
      ids[argument] =
          problem.addArgument(tensorOf(argument), {.name = nameOf(ir::argumentText(argument, ir::attr::name))});
    for (Operation &op : func.getBody().front().without_terminator())
      readOp(op);
    readResults();
    for (BlockArgument argument : func.getArguments())
      pin(argument);
    for (auto [mark, op] : llvm::enumerate(marks)) {
      problem.marks.push_back(readMark(op));
      problem.sequence |= splitsSequence(problem.marks.back());
    }
    return std::move(problem);
  }

private:
  func::FuncOp func;
  const Decisions &strategy;
  const NamedShardings &named;
  const Marks demands;
  ShardingProblem problem;
  DenseMap<Value, TensorId> ids;
  llvm::StringMap<NameId> names;
  llvm::StringMap<int64_t> labels; // by path and name of the op: how many there are
  SmallVector<ir::ShardHintOp> marks;

  static ProblemTensor tensorOf(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    return {.shape = type.getShape().vec(), .elementBits = type.getElementTypeBitWidth()};
  }

  NameId nameOf(StringRef name) {
    auto [entry, fresh] = names.try_emplace(name, static_cast<NameId>(problem.names.size()));
    if (fresh) {
      auto known = named.find(name.str());
      problem.names.push_back(
          {name.str(), known == named.end() ? std::nullopt : std::optional<Sharding>(known->second)});
    }
    return entry->second;
  }

  // The rows of a microbatch; 0 without inputs.
  int64_t rows() {
    for (BlockArgument argument : func.getArguments())
      if (ir::argumentKind(argument) == ir::SlotKind::Input && !ir::shapeOf(argument).empty())
        return ir::shapeOf(argument)[0];
    return 0;
  }

  // ---- ops ---------------------------------------------------------------------------------------------------------

  void readOp(Operation &operation) {
    ProblemOp op{.kind = kindOf(&operation)};
    if (std::optional<OpRule> rule = ruleOf(&operation))
      op.rule = problem.rules.add(std::move(*rule));
    for (Value operand : operation.getOperands())
      op.operands.push_back(ids.at(operand));
    if (auto stage = operation.getAttrOfType<IntegerAttr>(ir::attr::stage))
      op.stage = static_cast<int>(stage.getInt());
    op.backward = operation.hasAttr(ir::attr::phase);
    op.flops = flopsOf(&operation);
    op.attention = isa<ir::AttentionOp, ir::AttentionGradOp>(operation);
    if (auto random = dyn_cast<ir::RandomUniformOp>(operation); random && !random.getShared())
      op.samples = random.getType().getRank() > 0 && random.getType().getDimSize(0) == rows();
    op.path = pathOf(&operation);
    op.label = labelOf(operation, op);
    if (auto mark = dyn_cast<ir::ShardHintOp>(operation)) {
      op.mark = static_cast<int>(marks.size());
      marks.push_back(mark);
    }
    std::vector<ProblemTensor> results;
    for (Value result : operation.getResults())
      results.push_back(tensorOf(result));
    if (auto constant = dyn_cast<ir::ConstantOp>(operation))
      results[0].splat = constant.getValue().isSplat();
    else if (op.kind == OpKind::Broadcast)
      results[0].splat = problem.tensors[op.operands[0]].splat;
    else if (auto pool = dyn_cast<ir::MaxPool2dOp>(operation))
      results[cast<OpResult>(pool.getWorkspace()).getResultNumber()].fixed = true;
    const OpId id = problem.addOp(std::move(op), std::move(results));
    for (auto [result, tensor] : llvm::zip_equal(operation.getResults(), problem.ops[id].results))
      ids[result] = tensor;
  }

  std::string labelOf(Operation &operation, const ProblemOp &op) {
    const std::string name = (op.backward ? "backward." : "") + operation.getName().stripDialect().str();
    const int64_t number = ++labels[op.path + " " + name];
    return number == 1 ? name : fmt::format("{}.{}", name, number);
  }

  // ---- demands -----------------------------------------------------------------------------------------------------

  void readResults() {
    Operation *terminator = func.getBody().front().getTerminator();
    std::vector<TensorId> values;
    std::vector<Result> results;
    for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
      const ir::SlotKind kind = ir::resultKind(func, i);
      const StringRef name = ir::resultText(func, i, ir::attr::name);
      using enum ir::SlotKind;
      Result result;
      if (kind == Gradient || kind == Parameter || kind == Buffer)
        result.follows = nameOf(name);
      else if (kind == State)
        result.follows = nameOf(parameterOf(name));
      result.gradient = kind == Gradient;
      result.mayBePartial = kind == Gradient || ir::isMetric(kind);
      values.push_back(ids.at(value));
      results.push_back(result);
    }
    problem.addReturn(values, std::move(results));
  }

  // A state is named "<parameter>.<slot>".
  static StringRef parameterOf(StringRef state) { return state.substr(0, state.rfind('.')); }

  void pin(BlockArgument argument) {
    const TensorId tensor = ids.at(argument);
    const ir::SlotKind kind = ir::argumentKind(argument);
    const StringRef name = ir::argumentText(argument, ir::attr::name);
    using enum ir::SlotKind;
    const std::vector<int64_t> &shape = problem.tensors[tensor].shape;
    std::optional<Sharding> &pinned = problem.arguments[tensor].pinned;
    if (kind == Input)
      pinned = inputSharding(shape);
    else if (kind == Gradient || kind == State)
      pinned = ofParameter(kind == State ? parameterOf(name) : name, shape);
    else if (kind == Parameter || kind == Buffer)
      pinned = storedSharding(tensor, name.str());
    else
      pinned = Sharding::replicated(shape);
  }

  Sharding inputSharding(const std::vector<int64_t> &shape) const {
    const int64_t dp = strategy.mesh.size(AxisRole::Data);
    Sharding sharding = Sharding::replicated(shape);
    if (dp == 1 || shape.empty())
      return sharding;
    if (shape[0] < dp)
      throw userError(
          fmt::format("mesh: a microbatch has {} rows, fewer than dp = {} (batch / microbatches must be at least dp)",
                      shape[0], dp));
    sharding.dims[0].factors[0].axes = axesOf(AxisRole::Data);
    return sharding;
  }

  // The sharding of the parameter if the numbers of dimensions agree, otherwise replicated.
  Sharding ofParameter(StringRef name, const std::vector<int64_t> &shape) {
    const std::optional<Sharding> &known = problem.names[nameOf(name)].sharding;
    return known && known->dims.size() == shape.size() ? *known : Sharding::replicated(shape);
  }

  // The sharding of a parameter or buffer, if it is decided.
  std::optional<Sharding> storedSharding(TensorId tensor, const std::string &name) {
    std::optional<Sharding> &known = problem.names[problem.arguments[tensor].name].sharding;
    if (!known) {
      known = pinnedSharding(name, problem.tensors[tensor].shape, strategy, [&] { return headsOf(problem, tensor); });
      if (known)
        known->normalise(strategy.mesh);
    }
    return known;
  }

  MarkedDims readMark(ir::ShardHintOp op) const {
    const std::vector<int64_t> shape = cast<RankedTensorType>(op.getResult().getType()).getShape().vec();
    if (demands == Marks::Ignored)
      return MarkedDims(shape.size());
    std::string where = "withSharding";
    if (auto line = dyn_cast<FileLineColLoc>(op.getLoc()))
      where = fmt::format("{}:{}: withSharding", line.getFilename().str(), line.getLine());
    Sharding marked = Sharding::replicated(shape);
    MarkedDims dims(shape.size());
    for (auto [d, entry] : llvm::enumerate(op.getSharding().getAsValueRange<StringAttr>())) {
      if (entry.empty())
        continue;
      if (entry != ir::wholeDimension)
        marked.dims[d] = parseAxesSplit(entry.str(), shape[d], strategy.mesh, where);
      dims[d] = marked.dims[d];
    }
    refuseRepeatedAxes(marked, where);
    return dims;
  }
};

} // namespace

ShardingProblem readProblem(func::FuncOp func, const Decisions &strategy, const NamedShardings &named, Marks marks) {
  return Reader(func, strategy, named, marks).read();
}

} // namespace cleave::partitioner
