// Elementwise ops and constants: inference, verifiers, folders, canonicalisation.
#include "ir/graph/Constraints.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace cleave::ir;

LogicalResult CompareOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, ValueRange operands,
                                          DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                          SmallVectorImpl<Type> &types) {
  types.push_back(RankedTensorType::get(shapeOf(operands[0]), IntegerType::get(context, 1)));
  return success();
}

OpFoldResult CastOp::fold(FoldAdaptor adaptor) {
  if (getInput().getType() == getType())
    return getInput();
  auto value = splatOf(adaptor.getInput());
  if (!value)
    return {};
  if (!isa<FloatType>(getType().getElementType()) && !(std::abs(*value) < 0x1p31))
    return {};
  if (getType().getElementType().isInteger(1))
    return splatAttr(getType(), *value != 0);
  return splatAttr(getType(), *value);
}

LogicalResult ConstantOp::verify() {
  if (getValue().getShapedType() != getType())
    return emitOpError("C1: the value's type is ") << getValue().getShapedType() << ", the result's " << getType();
  return success();
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

LogicalResult IotaOp::verify() {
  if ((int64_t)getDim() < 0 || (int64_t)getDim() >= getType().getRank())
    return emitOpError("C1: dim ") << (int64_t)getDim() << " is not in [0, " << getType().getRank() << ")";
  if (!getType().getElementType().isInteger(32))
    return emitOpError("C2: the result's element type is ") << getType().getElementType() << ", not i32";
  if (getOffset() && (!shapeOf(getOffset()).empty() || !elementOf(getOffset()).isInteger(32)))
    return emitOpError("C3: the offset is ") << getOffset().getType() << ", not tensor<i32>";
  return success();
}

namespace {

/// x op neutral -> x (and neutral op x -> x if the op commutes).
template <typename Op> struct DropNeutral : OpRewritePattern<Op> {
  double neutral;
  bool commutes;
  DropNeutral(MLIRContext *context, double neutral, bool commutes)
      : OpRewritePattern<Op>(context), neutral(neutral), commutes(commutes) {}
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    if (splatOf(op.getRhs()) == neutral)
      rewriter.replaceOp(op, op.getLhs());
    else if (commutes && splatOf(op.getLhs()) == neutral)
      rewriter.replaceOp(op, op.getRhs());
    else
      return failure();
    return success();
  }
};

/// Folds an op on two float splats into one, rounded once from double (exact for f32: Figueroa 1995, When is double
/// rounding innocuous?).
template <typename Op> struct FoldSplats : OpRewritePattern<Op> {
  double (*compute)(double, double);
  FoldSplats(MLIRContext *context, double (*compute)(double, double))
      : OpRewritePattern<Op>(context), compute(compute) {}
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    auto lhs = splatOf(op.getLhs()), rhs = splatOf(op.getRhs());
    RankedTensorType type = op.getType();
    if (!lhs || !rhs || !isa<FloatType>(type.getElementType()))
      return failure();
    auto constant =
        ConstantOp::create(rewriter, op.getLoc(), type, cast<ElementsAttr>(splatAttr(type, compute(*lhs, *rhs))));
    copyMarks(op, constant);
    rewriter.replaceOp(op, constant.getResult());
    return success();
  }
};

} // namespace

void AddOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add(std::make_unique<DropNeutral<AddOp>>(context, 0.0, true));
  set.add(std::make_unique<FoldSplats<AddOp>>(context, [](double x, double y) { return x + y; }));
}
void SubOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add(std::make_unique<DropNeutral<SubOp>>(context, 0.0, false));
  set.add(std::make_unique<FoldSplats<SubOp>>(context, [](double x, double y) { return x - y; }));
}
void MulOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add(std::make_unique<DropNeutral<MulOp>>(context, 1.0, true));
  set.add(std::make_unique<FoldSplats<MulOp>>(context, [](double x, double y) { return x * y; }));
}
void DivOp::getCanonicalizationPatterns(RewritePatternSet &set, MLIRContext *context) {
  set.add(std::make_unique<DropNeutral<DivOp>>(context, 1.0, false));
  set.add(std::make_unique<FoldSplats<DivOp>>(context, [](double x, double y) { return x / y; }));
}
