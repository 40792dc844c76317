// Computes results of norms again in the backward pass, from the norm's input. The norm's gradient reads that input,
// and is in one kernel with what reads the result: a ReLU's gradient needs the sign of its result, a SiLU's its
// operand. The backward pass then reads one large tensor less, and what only it read is not kept.
#include "passes/recompute/Recompute.h"

#include "ir/graph/Graph.h"
#include "ir/graph/GraphBuilder.h"
#include "passes/codegen/nest/FromFusion.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// More ops would make kernels slower than memory.
constexpr size_t mostOps = 16;

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }

using ValueInStage = std::pair<Value, int64_t>;
/// Values from which gradients of a stage subtract a mean, also before casts and reshapes.
using NormInputs = DenseSet<ValueInStage>;

NormInputs normInputsOf(func::FuncOp train) {
  NormInputs found;
  for (auto sub : train.getBody().front().getOps<ir::SubOp>()) {
    if (!isBackward(sub) || !sub.getRhs().getDefiningOp<ir::BroadcastOp>())
      continue;
    Value value = sub.getLhs();
    while (found.insert({value, ir::stageOf(sub)}).second &&
           isa_and_nonnull<ir::CastOp, ir::ReshapeOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
  }
  return found;
}

/// The ops of the value's stage that compute it from inputs of norms and small values, operands before users; none if
/// there is another input. (A copy of an op of an earlier stage would make this stage wait for that one's backward
/// pass.)
class Chain {
public:
  Chain(Value value, int64_t stage, const NormInputs &normInputs)
      : elements(elementsOf(value)), stage(stage), normInputs(normInputs) {
    found = add(value) && ops.size() > 1;
  }
  ArrayRef<Operation *> get() const { return found ? ArrayRef<Operation *>(ops) : ArrayRef<Operation *>(); }

private:
  bool add(Value value) {
    Operation *op = value.getDefiningOp();
    if (elementsOf(value) < elements || (op && isa<ir::ConstantOp, ir::IotaOp>(op)))
      return true;
    if (normInputs.contains({value, stage}))
      return true;
    if (!op || isBackward(op) || ir::stageOf(op) != stage ||
        !isa<ir::AddOp, ir::SubOp, ir::MulOp, ir::MaxOp, ir::MinOp, ir::ReluOp, ir::CastOp, ir::BroadcastOp,
             ir::ReshapeOp>(op))
      return false;
    if (llvm::is_contained(ops, op))
      return true;
    if (++tried > mostOps || !llvm::all_of(op->getOperands(), [&](Value operand) { return add(operand); }))
      return false;
    ops.push_back(op);
    return true;
  }

  const int64_t elements;
  const int64_t stage;
  const NormInputs &normInputs;
  size_t tried = 0; ///< ops that were visited
  SmallVector<Operation *> ops;
  bool found = false;
};

/// Whether a kernel computes with what the op reads: a product that reads a cast or a view of it needs it in memory.
bool computes(Operation *op) {
  if (!kernel::isFusible(op))
    return false;
  return !isa<ir::CastOp, ir::ReshapeOp, ir::TransposeOp, ir::SliceOp>(op) || llvm::all_of(op->getUsers(), computes);
}

/// Whether the op looks for the elements that are equal to a maximum, as the gradient of one does: a copy that rounds
/// otherwise may have none.
bool findsEqual(Operation *op) {
  auto compare = dyn_cast<ir::CompareOp>(op);
  return compare && compare.getPredicate() == ir::Predicate::Eq;
}

/// What the op may compare with 0 in place of relu(x): x, before it is rounded to bf16, which has f32's exponents.
Value sameSign(Operation &op, Value value) {
  auto compare = dyn_cast<ir::CompareOp>(op);
  auto relu = value.getDefiningOp<ir::ReluOp>();
  if (!compare || !relu || compare.getLhs() != value || compare.getPredicate() != ir::Predicate::Le ||
      ir::splatOf(compare.getRhs()) != 0)
    return value;
  Value x = relu.getInput();
  if (auto cast = x.getDefiningOp<ir::CastOp>(); cast && getElementTypeOrSelf(x).isBF16())
    return getElementTypeOrSelf(cast.getInput()).isF32() ? cast.getInput() : x;
  return x;
}

} // namespace

void recomputeNormResults(func::FuncOp train) {
  const NormInputs normInputs = normInputsOf(train);
  DenseMap<ValueInStage, Value> copies; // null: not recomputed
  const auto copyOf = [&](Value value, Operation *reader) {
    const int64_t stage = ir::stageOf(reader);
    const auto [copy, fresh] = copies.try_emplace({value, stage});
    if (fresh) {
      const Chain chain(value, stage, normInputs);
      IRMapping map;
      OpBuilder builder(reader); // the first one
      for (Operation *original : chain.get())
        builder.clone(*original, map)->setAttr(ir::attr::phase, builder.getStringAttr("backward"));
      copy->second = map.lookupOrNull(value);
    }
    return copy->second;
  };
  for (Operation &op : llvm::make_early_inc_range(train.getBody().front().without_terminator())) {
    if (!isBackward(&op) || !computes(&op) || findsEqual(&op))
      continue;
    for (OpOperand &operand : op.getOpOperands()) {
      const Value value = operand.get();
      Operation *from = value.getDefiningOp();
      if (!from || isBackward(from) || ir::stageOf(from) != ir::stageOf(&op) ||
          normInputs.contains({value, ir::stageOf(&op)}))
        continue;
      const Value needed = sameSign(op, value), copy = copyOf(needed, &op);
      if (!copy)
        continue;
      operand.set(copy);
      if (needed != value) {
        ir::GraphBuilder e{OpBuilder(&op)};
        e.setOrigin(&op);
        op.setOperand(1, e.constantLike(copy, 0));
      }
    }
  }
}

} // namespace cleave::passes
