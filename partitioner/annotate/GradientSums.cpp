// Sets the type of gradient reductions over dp that happen in every microbatch, because the parameter is split over dp.
// (EmitEnds.cpp has those that happen once per iteration.)
#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/annotate/AnnotateStep.h"

using namespace mlir;

namespace cleave::partitioner {
namespace {

class SumType {
public:
  SumType(Type element, const Mesh &mesh) : element(element), mesh(mesh) {}

  /// Visits a gradient or one of its terms.
  void visit(Value value) {
    Operation *def = value.getDefiningOp();
    if (auto add = dyn_cast_if_present<ir::AddOp>(def)) {
      visit(add.getLhs());
      visit(add.getRhs());
    } else if (auto reshard = dyn_cast_if_present<dist::ReshardOp>(def)) {
      if (isSum(reshard))
        change(reshard);
      else
        visit(reshard.getInput());
    }
  }

private:
  Type element;
  const Mesh &mesh;

  bool isSum(dist::ReshardOp op) {
    Sharding from = shardingOf(op.getInput()), to = shardingOf(op.getResult());
    return mesh.size(AxisRole::Data) > 1 && from.partialKind == PartialKind::Sum &&
           from.isPartialOver(AxisRole::Data) && !to.isPartialOver(AxisRole::Data);
  }

  Value cast(OpBuilder &builder, dist::ReshardOp op, Value value, Type type) {
    auto made =
        ir::CastOp::create(builder, op.getLoc(), mlir::cast<RankedTensorType>(value.getType()).clone(type), value);
    ir::copyMarks(op, made);
    made->setAttr(dist::attr::shardings, builder.getArrayAttr(shardingAttrOf(value)));
    return made.getResult();
  }

  void change(dist::ReshardOp op) {
    Type before = getElementTypeOrSelf(op.getResult());
    if (before == element)
      return;
    OpBuilder builder(op);
    op.getInputMutable().assign(cast(builder, op, op.getInput(), element));
    op.getResult().setType(mlir::cast<RankedTensorType>(op.getResult().getType()).clone(element));
    builder.setInsertionPointAfter(op);
    Value back = cast(builder, op, op.getResult(), before);
    op.getResult().replaceAllUsesExcept(back, back.getDefiningOp());
  }
};

} // namespace

void setTypeOfGradientSums(ModuleOp step, const Mesh &mesh) {
  auto type = step->getAttrOfType<TypeAttr>(ir::attr::reduceDtype);
  if (!type)
    return;
  auto train = step.lookupSymbol<func::FuncOp>("train");
  for (OpOperand &result : train.getBody().front().getTerminator()->getOpOperands())
    if (ir::resultKind(train, result.getOperandNumber()) == ir::SlotKind::Gradient)
      SumType(type.getValue(), mesh).visit(result.get());
}

} // namespace cleave::partitioner
