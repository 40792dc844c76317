// Attention as a library call. Queries, keys and values are read in place from the projection that holds all heads. The
// result is written in the layout that the next op reads. Gradients are written directly into the gradient of the
// projection, if the three of them fill it.
#include "passes/rewrite/Values.h"
#include "passes/select/Selection.h"

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

/// The concatenation that is the gradient's only use, and the gradient's view in it.
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

/// The pieces of a concatenation that consists of exactly these three gradients; empty if there is none.
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

/// The views that a call has of its operands and results.
library::ViewAttr viewAttr(Operation *op, const OperandView &operand) {
  return library::ViewAttr::get(op->getContext(), operand.view);
}

/// An optional operand, and its view; null if it is absent.
struct Extra {
  Value base;
  library::ViewAttr view;
};
Extra extraOf(Operation *op, Value operand) {
  if (!operand)
    return {};
  const OperandView found = headsView(operand);
  return {found.base, viewAttr(op, found)};
}

int64_t keysOf(Value k) { return sizesOf(k)[2]; }

/// Replaces these values with the results of the call.
void replaceBy(Operation *op, ArrayRef<Value> results, Operation *call) {
  carryMarks(op, call);
  carryShardings(results, call);
  for (auto [old, made] : llvm::zip(results, call->getResults()))
    Value(old).replaceAllUsesWith(made);
}

} // namespace

void selectAttention(ir::AttentionOp op) {
  const OperandView q = headsView(op.getQ()), k = headsView(op.getK()), v = headsView(op.getV()),
                    out = farthestResult(op.getResult(), fitHeads);
  const Extra bias = extraOf(op, op.getBias()), keep = extraOf(op, op.getKeep());
  auto view = [&](const OperandView &operand) { return viewAttr(op, operand); };
  const Sizes sizes = sizesOf(op.getQ());
  OpBuilder b(op);
  replaceBy(op, {out.base, op.getLse()},
            library::AttentionOp::create(b, op.getLoc(), out.base.getType(), op.getLse().getType(), q.base, view(q),
                                         k.base, view(k), v.base, view(v), bias.base, keep.base, view(out), bias.view,
                                         keep.view, sizes[0], sizes[1], sizes[2], keysOf(op.getK()), sizes[3],
                                         op.getScale(), op.getCausal(), op.getDropout()));
}

void selectAttention(ir::AttentionGradOp op) {
  const OperandView grad = headsView(op.getGrad()), q = headsView(op.getQ()), k = headsView(op.getK()),
                    v = headsView(op.getV()), out = headsView(op.getOut());
  const Extra bias = extraOf(op, op.getBias()), keep = extraOf(op, op.getKeep());
  auto view = [&](const OperandView &operand) { return viewAttr(op, operand); };
  const SmallVector<Piece> pieces = piecesOfOne(op);
  SmallVector<OperandView> written; // the gradients of q, k and v
  SmallVector<Value> results;
  SmallVector<Type> types;
  for (unsigned i = 0; i < 3; ++i) {
    written.push_back(pieces.empty() ? farthestResult(op->getResult(i), fitHeads)
                                     : OperandView{Piece(pieces[i]).concat.getResult(), pieces[i].view});
    if (!pieces.empty() && i > 0)
      continue;
    results.push_back(written[i].base);
    types.push_back(written[i].base.getType());
  }
  const Sizes sizes = sizesOf(op.getQ());
  OpBuilder b(op);
  replaceBy(op, results,
            library::AttentionGradOp::create(b, op.getLoc(), types, grad.base, view(grad), q.base, view(q), k.base,
                                             view(k), v.base, view(v), out.base, view(out), op.getLse(), bias.base,
                                             keep.base, view(written[0]), view(written[1]), view(written[2]), bias.view,
                                             keep.view, sizes[0], sizes[1], sizes[2], keysOf(op.getK()), sizes[3],
                                             op.getScale(), op.getCausal(), op.getDropout()));
}

} // namespace cleave::passes
