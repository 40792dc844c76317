// The update segment: a stage computes the results of the parameters it owns; the global gradient norm is a sum over
// all stages in which replicated and tied parameters count once.
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/apply/Emit.h"
#include "partitioner/sharding/Assign.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

constexpr llvm::StringLiteral parameterAttr = "cleave.parameter";

class UpdateEmitter {
public:
  UpdateEmitter(const StepInfo &info, RankClass &rankClass, LocalFunction &local)
      : info(info), rankClass(rankClass), local(local), update(info.update) {}

  void run() {
    // A sum over all parameters is one over all stages: a stage that updates nothing takes part.
    for (Operation &op : update.getBody().front().without_terminator())
      if (op.getNumResults() == 1 && isWholeSum(op.getResult(0)))
        get(op.getResult(0));
    auto terminator = update.getBody().front().getTerminator();
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i) {
      std::string kind = text(update.getResultAttrDict(i), ir::attr::kind),
                  name = text(update.getResultAttrDict(i), ir::attr::name);
      const std::string parameter = kind == "state" ? name.substr(0, name.rfind('.')) : name;
      if (owns(parameter) ||
          (kind == "state" && !info.owners.count(parameter))) // a state of no parameter is everybody's
        local.returns(kind, name, get(terminator->getOperand(i)));
    }
  }

private:
  const StepInfo &info;
  RankClass &rankClass;
  LocalFunction &local;
  func::FuncOp update;
  DenseMap<Value, Value> values;

  static std::string text(DictionaryAttr dict, StringRef name) {
    auto found = dict ? dict.getAs<StringAttr>(name) : StringAttr();
    return found ? found.str() : "";
  }

  bool owns(const std::string &parameter) {
    auto found = info.owners.find(parameter);
    return found != info.owners.end() && llvm::is_contained(found->second, rankClass.stage);
  }
  // Tied parameters count where they first live.
  bool counts(const std::string &parameter) {
    return owns(parameter) && info.owners.at(parameter).front() == rankClass.stage;
  }

  static std::string parameterOf(Operation *op) {
    auto name = op->getAttrOfType<StringAttr>(parameterAttr);
    return name ? name.str() : "";
  }

  // The terms of a sum over parameters: an addition of scalars that belongs to no parameter.
  static void collectTerms(Value value, SmallVector<Value> &terms) {
    Operation *def = value.getDefiningOp();
    if (auto reshard = dyn_cast_if_present<dist::ReshardOp>(def))
      return collectTerms(reshard.getInput(), terms);
    if (auto add = dyn_cast_if_present<ir::AddOp>(def); add && parameterOf(def).empty()) {
      collectTerms(add.getLhs(), terms);
      collectTerms(add.getRhs(), terms);
    } else {
      terms.push_back(value);
    }
  }

  // A sum over parameters, finished or not.
  static bool isSumOverParameters(Value value, SmallVector<Value> &terms) {
    Operation *def = value.getDefiningOp();
    if (isa_and_nonnull<dist::ReshardOp>(def) && parameterOf(def).empty())
      return isSumOverParameters(def->getOperand(0), terms);
    bool scalar = cast<RankedTensorType>(value.getType()).getRank() == 0;
    // A model with one parameter has a sum of one term: the term itself, read by ops of no parameter.
    bool single = def && scalar && !parameterOf(def).empty() && isa<ir::ReduceOp, dist::ReshardOp>(def);
    if (!def || !scalar || !(single || (isa<ir::AddOp>(def) && parameterOf(def).empty())))
      return false;
    collectTerms(value, terms);
    return llvm::all_of(terms,
                        [](Value term) { return term.getDefiningOp() && !parameterOf(term.getDefiningOp()).empty(); });
  }

  // A sum over parameters that is no part of a larger one.
  static bool isWholeSum(Value value) {
    SmallVector<Value> terms;
    return isSumOverParameters(value, terms) && llvm::any_of(value.getUsers(), [](Operation *user) {
             SmallVector<Value> larger;
             return user->getNumResults() != 1 || !isSumOverParameters(user->getResult(0), larger);
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

  // Terms of split parameters are added first and reduced once; then the whole ones; then over the stages.
  Value sumOverParameters(ArrayRef<Value> terms) {
    std::map<std::vector<std::string>, SmallVector<Value>> byAxes;
    for (Value term : terms)
      if (counts(parameterOf(term.getDefiningOp())))
        byAxes[shardingOf(term).partialAxes].push_back(emit(term));
    SmallVector<Value> parts;
    for (auto &[axes, group] : byAxes)
      parts.push_back(local.localiser.allReduce(update.getLoc(), total(group), axes, "sum")[0]);
    Value sum = local.localiser.allReduce(update.getLoc(), total(parts), {"pp"}, "sum")[0];
    if (Operation *op = sum.getDefiningOp(); op && isa<dist::AllReduceOp>(op))
      op->setAttr(ir::attr::path, local.builder.getStringAttr("gradient norm"));
    return sum;
  }

  Value get(Value value) {
    if (auto known = values.find(value); known != values.end())
      return known->second;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      DictionaryAttr dict = update.getArgAttrDict(argument.getArgNumber());
      return values[value] = local.slot(text(dict, ir::attr::kind), text(dict, ir::attr::name), value);
    }
    SmallVector<Value> terms;
    if (isSumOverParameters(value, terms))
      return values[value] = sumOverParameters(terms);
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
  LocalFunction local(module, rankClass, "update", info.strategy->mesh, coords);
  UpdateEmitter(info, rankClass, local).run();
  local.finish(rankClass);
}

} // namespace cleave::partitioner
