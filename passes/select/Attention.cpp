// Attention as a library call: queries, keys and values are read where they lie, as heads of one projection; the result
// is written as what follows it reads it, with the heads of a row side by side; and so are the gradients, into the
// projection's gradient where together they are all of it.
#include "passes/select/Detail.h"

using namespace mlir;

namespace cleave::passes {

bool fitHeads(const Strided &view) { return view.strides.back() == 1; }

namespace {

OperandView headsView(Value operand) {
  return farthestView(operand, [](Strided view) { return fitHeads(view) ? std::optional(view) : std::nullopt; });
}

struct Piece {
  ir::ConcatOp concat;
  Strided view;
};

/// The concatenation that a gradient ends in and how the gradient lies in it; none where something else is done to it.
std::optional<Piece> pieceOf(Value gradient) {
  SmallVector<Operation *> chain = renamingsOf(gradient);
  Value value = chain.empty() ? gradient : Value(chain.back()->getResult(0));
  if (!value.hasOneUse())
    return std::nullopt;
  OpOperand &use = *value.use_begin();
  auto concat = dyn_cast<ir::ConcatOp>(use.getOwner());
  if (!concat)
    return std::nullopt;
  const Strided whole = Strided::contiguous(sizesOf(concat.getResult()));
  std::optional<Strided> view = beforeAll(pieceView(whole, concat, use.getOperandNumber()), chain);
  if (!view || !fitHeads(*view))
    return std::nullopt;
  return Piece{concat, *view};
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

/// The call, whose results stand for these values.
void replaceBy(Operation *op, ArrayRef<Value> results, ArrayRef<Value> operands, NamedAttrList &attributes) {
  OpBuilder b(op);
  carrySharding(results, attributes);
  SmallVector<Type> types;
  for (Value result : results)
    types.push_back(result.getType());
  auto call = library::CallOp::create(b, op->getLoc(), types, operands, attributes.getAttrs());
  for (size_t i = 0; i < results.size(); ++i)
    Value(results[i]).replaceAllUsesWith(call->getResult(static_cast<unsigned>(i)));
}

} // namespace

void selectAttention(ir::AttentionOp attention) {
  NamedAttrList attributes = callAttributes(attention);
  SmallVector<Value> operands =
      readViews(attention, {"q", "k", "v"}, {attention.getQ(), attention.getK(), attention.getV()}, attributes);
  OpBuilder b(attention);
  const OperandView out = farthestResult(attention.getResult(), fitHeads);
  attributes.set("out", viewAttr(b, out.view));
  attributes.set("sizes", b.getDenseI64ArrayAttr(sizesOf(attention.getQ())));
  attributes.set("keys", b.getDenseI64ArrayAttr({sizesOf(attention.getK())[2]}));
  replaceBy(attention, {out.base, attention.getLse()}, operands, attributes);
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
  SmallVector<Piece> pieces = piecesOfOne(gradient);
  static constexpr const char *names[] = {"dq", "dk", "dv"};
  SmallVector<Value> results;
  for (unsigned i = 0; i < 3; ++i) {
    OperandView written = pieces.empty() ? farthestResult(gradient->getResult(i), fitHeads)
                                         : OperandView{pieces[i].concat.getResult(), pieces[i].view};
    attributes.set(names[i], viewAttr(b, written.view));
    if (pieces.empty() || i == 0)
      results.push_back(written.base);
  }
  replaceBy(gradient, results, operands, attributes);
}

} // namespace cleave::passes
