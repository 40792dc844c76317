// Follows a gradient back through linear ops to the sums that produce it.
#include "frontend/program/Magnitudes.h"
#include "ir/graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace cleave {

namespace {

class Magnitudes {
public:
  explicit Magnitudes(OpBuilder builder) : b(std::move(builder)) {}

  Value of(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return absolute(value);
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case<ir::AddOp, ir::SubOp>([&](auto sum) -> Value {
          return ir::AddOp::create(b, op->getLoc(), of(sum->getOperand(0)), of(sum->getOperand(1)));
        })
        .Case<ir::ReduceOp>([&](ir::ReduceOp reduce) {
          return reduce.getKind() == ir::ReduceKind::Sum ? with(op, of(op->getOperand(0))) : absolute(value);
        })
        .Case<ir::NegOp>([&](auto) { return of(op->getOperand(0)); })
        .Case<ir::CastOp>([&](auto) { return of(op->getOperand(0)); })
        .Case<ir::ReshapeOp, ir::TransposeOp, ir::BroadcastOp>([&](auto) { return with(op, of(op->getOperand(0))); })
        .Case<ir::MulOp>([&](auto) -> Value {
          if (ir::splatOf(op->getOperand(0)) || ir::splatOf(op->getOperand(1)))
            return ir::MulOp::create(b, op->getLoc(), of(op->getOperand(0)), of(op->getOperand(1)));
          return absolute(value);
        })
        .Default([&](Operation *) { return absolute(value); });
  }

private:
  /// Magnitudes are f32: a sum of absolute terms may exceed the range of f16.
  RankedTensorType single(Value value) { return cast<RankedTensorType>(value.getType()).clone(b.getF32Type()); }
  Value absolute(Value value) {
    if (!getElementTypeOrSelf(value).isF32())
      value = ir::CastOp::create(b, value.getLoc(), single(value), value);
    return ir::AbsOp::create(b, value.getLoc(), value);
  }
  /// A copy of the op with another operand.
  Value with(Operation *op, Value operand) {
    Operation *copy = b.clone(*op);
    copy->setOperand(0, operand);
    copy->getResult(0).setType(single(op->getResult(0)));
    return copy->getResult(0);
  }

  OpBuilder b;
};

} // namespace

void addMagnitudes(GraphModule &step) {
  auto train = step.module().lookupSymbol<func::FuncOp>("train");
  Operation *terminator = train.front().getTerminator();
  Magnitudes magnitudes{OpBuilder(terminator)};
  SmallVector<Value> results(terminator->getOperands());
  SmallVector<DictionaryAttr> attributes;
  for (unsigned i = 0; i < train.getNumResults(); ++i)
    attributes.push_back(train.getResultAttrDict(i));
  Builder b(train.getContext());
  for (unsigned i = 0, count = train.getNumResults(); i < count; ++i) {
    const auto kind = train.getResultAttrOfType<StringAttr>(i, ir::attr::kind);
    if (!kind || kind.getValue() != "gradient")
      continue;
    results.push_back(magnitudes.of(results[i]));
    attributes.push_back(b.getDictionaryAttr({b.getNamedAttr(ir::attr::kind, b.getStringAttr("magnitude")),
                                              b.getNamedAttr(ir::attr::name, train.getResultAttr(i, ir::attr::name))}));
  }
  terminator->setOperands(results);
  train.setType(b.getFunctionType(train.getArgumentTypes(), ValueRange(results).getTypes()));
  train.setAllResultAttrs(attributes);
}

} // namespace cleave
