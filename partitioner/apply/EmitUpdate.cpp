// The update segment: a rank updates the parameters that it owns. The global gradient norm is a sum over all ranks,
// in which replicated and tied parameters count once.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/Emit.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

class UpdateEmitter {
public:
  UpdateEmitter(const StepInfo &info, RankClass &rankClass, LocalFunction &local)
      : info(info), rankClass(rankClass), local(local), update(info.update) {}

  void run() {
    findSums();
    // A sum over all parameters is a collective of all stages, so a stage without parameters also takes part.
    for (Operation &op : update.getBody().front().without_terminator())
      if (op.getNumResults() == 1 && isWholeSum(op.getResult(0)))
        get(op.getResult(0));
    auto terminator = update.getBody().front().getTerminator();
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i) {
      const ir::SlotKind kind = ir::resultKind(update, i);
      const std::string name = ir::resultText(update, i, ir::attr::name).str();
      const std::string parameter = kind == ir::SlotKind::State ? name.substr(0, name.rfind('.')) : name;
      if (owns(parameter) || (kind == ir::SlotKind::State &&
                              !info.owners.count(parameter))) // a state without a parameter belongs to all stages
        local.returns(kind, name, get(terminator->getOperand(i)));
    }
  }

private:
  const StepInfo &info;
  RankClass &rankClass;
  LocalFunction &local;
  func::FuncOp update;
  DenseMap<Value, Value> values;
  DenseMap<Value, bool> addsParameters; // see addsParametersOnly
  DenseSet<Value> sums;                 // over parameters, including partial sums

  bool owns(const std::string &parameter) {
    auto found = info.owners.find(parameter);
    return found != info.owners.end() && llvm::is_contained(found->second, rankClass.position);
  }
  // A tied parameter counts only at its first position.
  bool counts(const std::string &parameter) {
    return owns(parameter) && info.owners.at(parameter).front() == rankClass.position;
  }

  static std::string parameterOf(Operation *op) {
    auto name = op->getAttrOfType<StringAttr>(ir::attr::parameter);
    return name ? name.str() : "";
  }

  static bool ofNoParameter(Operation *op) { return !op->hasAttr(ir::attr::parameter); }

  // The terms of a sum over parameters: additions of scalars that belong to no parameter. Iterative, because the chain
  // of additions may be as long as the number of parameters.
  static SmallVector<Value> termsOf(Value sum) {
    SmallVector<Value> terms, open{sum};
    while (!open.empty()) {
      Value value = open.pop_back_val();
      Operation *def = value.getDefiningOp();
      if (auto reshard = dyn_cast_if_present<dist::ReshardOp>(def)) {
        open.push_back(reshard.getInput());
      } else if (auto add = dyn_cast_if_present<ir::AddOp>(def); add && ofNoParameter(add)) {
        open.push_back(add.getRhs());
        open.push_back(add.getLhs());
      } else {
        terms.push_back(value);
      }
    }
    return terms;
  }

  // Whether all terms of a possible sum belong to parameters. The operands must have been visited before.
  bool addsParametersOnly(Operation *op) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op))
      return addsParameters.lookup(reshard.getInput());
    if (auto add = dyn_cast<ir::AddOp>(op); add && ofNoParameter(add))
      return addsParameters.lookup(add.getLhs()) && addsParameters.lookup(add.getRhs());
    return !ofNoParameter(op);
  }

  void findSums() {
    for (Operation &op : update.getBody().front().without_terminator())
      if (op.getNumResults() == 1) {
        addsParameters[op.getResult(0)] = addsParametersOnly(&op);
        if (isSum(&op))
          sums.insert(op.getResult(0));
      }
  }

  bool isSum(Operation *op) {
    if (isa<dist::ReshardOp>(op) && ofNoParameter(op))
      return sums.contains(op->getOperand(0));
    const bool scalar = cast<RankedTensorType>(op->getResult(0).getType()).getRank() == 0;
    // With one parameter, the sum has one term: the term itself, read by ops that belong to no parameter.
    const bool single = !ofNoParameter(op) && isa<ir::ReduceOp, dist::ReshardOp>(op);
    return scalar && (single || (isa<ir::AddOp>(op) && ofNoParameter(op))) && addsParameters.lookup(op->getResult(0));
  }

  // Whether a sum over parameters is not part of a larger one.
  bool isWholeSum(Value value) {
    return sums.contains(value) && llvm::any_of(value.getUsers(), [&](Operation *user) {
             return user->getNumResults() != 1 || !sums.contains(user->getResult(0));
           });
  }

  Value zero() {
    auto type = RankedTensorType::get({}, local.builder.getF32Type());
    return ir::ConstantOp::create(local.builder, update.getLoc(), type,
                                  DenseElementsAttr::get(type, local.builder.getZeroAttr(type.getElementType())));
  }

  Value total(ArrayRef<Value> parts) {
    if (parts.empty())
      return zero();
    Value sum = parts[0];
    for (Value part : parts.drop_front())
      sum = ir::AddOp::create(local.builder, update.getLoc(), sum, part);
    return sum;
  }

  // Adds terms of split parameters first and reduces them once; then adds the replicated ones; then reduces over
  // stages.
  Value sumOverParameters(ArrayRef<Value> terms) {
    std::map<std::vector<std::string>, SmallVector<Value>> byAxes;
    for (Value term : terms)
      if (counts(parameterOf(term.getDefiningOp())))
        byAxes[shardingOf(term).partialAxes].push_back(emit(term));
    SmallVector<Value> parts;
    for (auto &[axes, group] : byAxes)
      parts.push_back(local.localiser.allReduce(update.getLoc(), total(group), axes, PartialKind::Sum)[0]);
    Value sum =
        local.localiser.allReduce(update.getLoc(), total(parts), axesOf(AxisRole::Pipeline), PartialKind::Sum)[0];
    if (Operation *op = sum.getDefiningOp(); op && isa<dist::AllReduceOp>(op))
      op->setAttr(ir::attr::path, local.builder.getStringAttr("gradient norm"));
    return sum;
  }

  Value get(Value value) {
    if (auto known = values.find(value); known != values.end())
      return known->second;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return values[value] = local.slot(argument);
    if (sums.contains(value))
      return values[value] = sumOverParameters(termsOf(value));
    return emit(value);
  }

  Value emit(Value value) {
    Operation *def = value.getDefiningOp();
    SmallVector<Value> operands;
    for (Value operand : def->getOperands())
      operands.push_back(get(operand));
    SmallVector<Value> results = local.localiser.emit(def, operands);
    for (auto [global, piece] : llvm::zip_equal(def->getResults(), results))
      values[global] = piece;
    return values[value];
  }
};

} // namespace

void emitUpdate(const StepInfo &info, ModuleOp module, RankClass &rankClass, const std::vector<int64_t> &coords) {
  LocalFunction local(module, rankClass, {SegmentKind::Update}, info.strategy->mesh, coords);
  UpdateEmitter(info, rankClass, local).run();
  local.finish(rankClass);
}

} // namespace cleave::partitioner
