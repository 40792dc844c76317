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

/// Whether a gradient subtracts a mean from the value.
bool isNormInput(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) -> bool {
    if (isa<ir::CastOp, ir::ReshapeOp>(user))
      return isNormInput(user->getResult(0));
    auto sub = dyn_cast<ir::SubOp>(user);
    return sub && isBackward(sub) && sub.getRhs().getDefiningOp<ir::BroadcastOp>();
  });
}

/// The ops that compute a value from inputs of norms and small values, operands before users; none if there is another
/// input.
class Chain {
public:
  explicit Chain(Value value) : elements(elementsOf(value)) { found = add(value) && ops.size() > 1; }
  ArrayRef<Operation *> get() const { return found ? ArrayRef<Operation *>(ops) : ArrayRef<Operation *>(); }

private:
  bool add(Value value) {
    Operation *op = value.getDefiningOp();
    if (elementsOf(value) < elements || (op && isa<ir::ConstantOp, ir::IotaOp>(op)))
      return true;
    if (isNormInput(value))
      return ops.size() < mostOps;
    if (!op || isBackward(op) ||
        !isa<ir::AddOp, ir::SubOp, ir::MulOp, ir::MaxOp, ir::MinOp, ir::ReluOp, ir::CastOp, ir::BroadcastOp,
             ir::ReshapeOp>(op))
      return false;
    if (llvm::is_contained(ops, op))
      return true;
    if (!llvm::all_of(op->getOperands(), [&](Value operand) { return add(operand); }))
      return false;
    ops.push_back(op);
    return ops.size() <= mostOps;
  }

  const int64_t elements;
  SmallVector<Operation *> ops;
  bool found = false;
};

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
  DenseMap<Value, Value> copies; // null: not recomputed
  const auto copyOf = [&](Value value, Operation *reader) {
    const auto [copy, fresh] = copies.try_emplace(value);
    if (fresh) {
      const Chain chain(value);
      IRMapping map;
      OpBuilder builder(reader); // the first one
      for (Operation *original : chain.get())
        builder.clone(*original, map)->setAttr(ir::attr::phase, builder.getStringAttr("backward"));
      copy->second = map.lookupOrNull(value);
    }
    return copy->second;
  };
  for (Operation &op : llvm::make_early_inc_range(train.getBody().front().without_terminator())) {
    if (!isBackward(&op) || !kernel::isFusible(&op))
      continue;
    for (OpOperand &operand : op.getOpOperands()) {
      const Value value = operand.get();
      Operation *from = value.getDefiningOp();
      if (!from || isBackward(from) || from->getAttr(ir::attr::stage) != op.getAttr(ir::attr::stage) ||
          isNormInput(value))
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
