// Attention as a library call: queries, keys and values are read where they lie, as heads of one projection, and their
// gradients are written there, where together they are all of the projection's gradient.
#include "passes/export/SelectDetail.h"

using namespace mlir;

namespace cleave::passes {

namespace {

OperandView headsView(Value operand) {
  return farthestView(operand, [](Strided view) -> std::optional<Strided> {
    return view.strides.back() == 1 ? std::optional(view) : std::nullopt;
  });
}

struct Piece {
  ir::ConcatOp concat;
  unsigned index = 0;
  Strided view;
};

/// The concatenation that a gradient ends in and how the gradient lies in it; none where something else is done to it.
std::optional<Piece> pieceOf(Value gradient) {
  SmallVector<Operation *> chain;
  Value value = gradient;
  while (value.hasOneUse() && isa<ir::ReshapeOp, ir::TransposeOp>(*value.getUsers().begin())) {
    chain.push_back(*value.getUsers().begin());
    value = chain.back()->getResult(0);
  }
  if (!value.hasOneUse())
    return std::nullopt;
  OpOperand &use = *value.use_begin();
  auto concat = dyn_cast<ir::ConcatOp>(use.getOwner());
  if (!concat)
    return std::nullopt;
  std::optional<Strided> view =
      pieceView(Strided::contiguous(sizesOf(concat.getResult())), concat, use.getOperandNumber());
  for (Operation *op : llvm::reverse(chain))
    if (view)
      view = beforeOp(*view, op);
  if (!view || view->strides.back() != 1)
    return std::nullopt;
  return Piece{concat, use.getOperandNumber(), *view};
}

/// The three gradients' places in a concatenation that has no other pieces; empty where there is none.
SmallVector<Piece> piecesOfOne(ir::AttentionGradOp gradient) {
  SmallVector<Piece> pieces;
  for (Value result : gradient->getResults()) {
    auto piece = pieceOf(result);
    if (!piece || (!pieces.empty() && piece->concat != pieces.front().concat))
      return {};
    pieces.push_back(*piece);
  }
  return pieces.front().concat.getInputs().size() == pieces.size() ? pieces : SmallVector<Piece>();
}

/// Operands as views, under these names.
SmallVector<Value> readViews(Operation *op, ArrayRef<StringRef> names, ValueRange values, NamedAttrList &attributes) {
  OpBuilder b(op);
  SmallVector<Value> operands;
  for (auto [name, value] : llvm::zip(names, values)) {
    const OperandView view = headsView(value);
    operands.push_back(view.base);
    attributes.set(name, viewAttr(b, view.view));
  }
  return operands;
}

} // namespace

void selectAttention(ir::AttentionOp attention) {
  NamedAttrList attributes = callAttributes(attention);
  SmallVector<Value> operands =
      readViews(attention, {"q", "k", "v"}, {attention.getQ(), attention.getK(), attention.getV()}, attributes);
  OpBuilder b(attention);
  attributes.set("out", viewAttr(b, Strided::contiguous(sizesOf(attention.getResult()))));
  attributes.set("sizes", b.getDenseI64ArrayAttr(sizesOf(attention.getQ())));
  attributes.set("keys", b.getDenseI64ArrayAttr({sizesOf(attention.getK())[2]}));
  auto call =
      library::CallOp::create(b, attention.getLoc(), attention->getResultTypes(), operands, attributes.getAttrs());
  attention->replaceAllUsesWith(call->getResults());
}

void selectAttention(ir::AttentionGradOp gradient) {
  NamedAttrList attributes = callAttributes(gradient);
  SmallVector<Value> operands =
      readViews(gradient, {"dout", "q", "k", "v", "out"},
                {gradient.getGrad(), gradient.getQ(), gradient.getK(), gradient.getV(), gradient.getOut()}, attributes);
  operands.push_back(gradient.getLse());
  OpBuilder b(gradient);
  attributes.set("sizes", b.getDenseI64ArrayAttr(sizesOf(gradient.getQ())));
  attributes.set("keys", b.getDenseI64ArrayAttr({sizesOf(gradient.getK())[2]}));
  const SmallVector<Piece> pieces = piecesOfOne(gradient);
  static constexpr const char *names[] = {"dq", "dk", "dv"};
  for (unsigned i = 0; i < 3; ++i)
    attributes.set(names[i],
                   viewAttr(b, pieces.empty() ? Strided::contiguous(sizesOf(gradient->getResult(i))) : pieces[i].view));
  if (pieces.empty()) {
    auto call =
        library::CallOp::create(b, gradient.getLoc(), gradient->getResultTypes(), operands, attributes.getAttrs());
    gradient->replaceAllUsesWith(call->getResults());
    return;
  }
  ir::ConcatOp concat = pieces.front().concat;
  carrySharding(concat, attributes);
  auto call = library::CallOp::create(b, gradient.getLoc(), concat->getResultTypes(), operands, attributes.getAttrs());
  concat.getResult().replaceAllUsesWith(call->getResult(0));
}

} // namespace cleave::passes
