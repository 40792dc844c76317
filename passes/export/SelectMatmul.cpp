// Matrix products: which memory the operands are read from and the result is written to, and with what strides.
#include "passes/export/SelectDetail.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// What is done to a product's result, step by step; each the only use of what came before.
struct Follower {
  enum Kind { Reshape, Transpose, Bias, Accumulate, Sum, Concat } kind;
  Operation *op;
  Value other;        // bias, gradient argument, or the other addend
  unsigned piece = 0; // of a concatenation
};

/// A product already selected whose only use is the sum with this one: this one is added to its memory.
Value earlierProduct(ir::AddOp add, Value value, Operation *product) {
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  auto call = other.getDefiningOp<library::CallOp>();
  if (!call || call.callee() != ir::MatmulOp::getOperationName() || !other.hasOneUse() ||
      !definedBefore(other, product))
    return {};
  return other;
}

std::optional<Follower> follow(Value value, Operation *product, bool plain) {
  if (!value.hasOneUse())
    return std::nullopt;
  OpOperand &use = *value.use_begin();
  Operation *op = use.getOwner();
  if (isa<ir::ReshapeOp>(op))
    return Follower{Follower::Reshape, op, {}};
  if (isa<ir::TransposeOp>(op))
    return Follower{Follower::Transpose, op, {}};
  if (isa<ir::ConcatOp>(op))
    return Follower{Follower::Concat, op, {}, use.getOperandNumber()};
  auto add = dyn_cast<ir::AddOp>(op);
  if (!add)
    return std::nullopt;
  if (Value bias = plain ? productBias(add, value, product) : Value())
    return Follower{Follower::Bias, op, bias};
  if (auto [sum, gradient] = onlyAccumulation(value); sum)
    return Follower{Follower::Accumulate, op, gradient};
  if (Value earlier = earlierProduct(add, value, product))
    return Follower{Follower::Sum, op, earlier};
  return std::nullopt;
}

SmallVector<Follower> followers(ir::MatmulOp matmul) {
  SmallVector<Follower> chain;
  Value value = matmul.getResult();
  bool plain = true; // rows are still rows
  while (auto next = follow(value, matmul, plain)) {
    if (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).empty())
      break;
    if (next->kind == Follower::Transpose ||
        (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).back() != sizesOf(matmul).back()))
      plain = false;
    chain.push_back(*next);
    if (next->kind == Follower::Accumulate || next->kind == Follower::Concat || next->kind == Follower::Sum)
      break;
    value = next->op->getResult(0);
  }
  return chain;
}

Value lastResult(ir::MatmulOp matmul, ArrayRef<Follower> chain) {
  return chain.empty() ? Value(matmul.getResult()) : Value(chain.back().op->getResult(0));
}

/// How the product's own result lies in the memory of the last follower's.
std::optional<Strided> resultView(ir::MatmulOp matmul, ArrayRef<Follower> chain) {
  Value last = lastResult(matmul, chain);
  Strided view = Strided::contiguous(sizesOf(last));
  for (const Follower &follower : llvm::reverse(chain)) {
    if (follower.kind == Follower::Concat)
      view = pieceView(view, cast<ir::ConcatOp>(follower.op), follower.piece);
    if (follower.kind != Follower::Transpose && follower.kind != Follower::Reshape)
      continue;
    auto before = beforeOp(view, follower.op);
    if (!before)
      return std::nullopt;
    view = *before;
  }
  return view;
}

/// The operand as a window onto the farthest memory behind it that a library can read: [batch..., rows, columns].
OperandView operandView(Value operand, bool transposed, const Sizes &batch) {
  return farthestView(operand, [&](Strided view) -> std::optional<Strided> {
    size_t r = view.shape.size();
    if (transposed)
      std::swap(view.shape[r - 2], view.shape[r - 1]), std::swap(view.strides[r - 2], view.strides[r - 1]);
    if (r == 2 && !batch.empty()) { // shared
      view.shape.insert(view.shape.begin(), batch.begin(), batch.end());
      view.strides.insert(view.strides.begin(), batch.size(), 0);
    }
    return fitMatrix(view) ? std::optional(view) : std::nullopt;
  });
}

bool fit(Product &product) { return fitMatrix(product.a) && fitMatrix(product.b) && fitMatrix(product.c); }

/// c^T = b^T a^T, for a result whose columns are neighbours in memory.
void transposeProduct(Product &product, OperandView &a, OperandView &b) {
  std::swap(a, b);
  std::swap(product.a, product.b), std::swap(product.m, product.n);
  for (Strided *view : {&product.a, &product.b, &product.c}) {
    size_t r = view->shape.size();
    std::swap(view->shape[r - 2], view->shape[r - 1]), std::swap(view->strides[r - 2], view->strides[r - 1]);
  }
}

struct Selected {
  Product product;
  OperandView a, b;
};

std::optional<Selected> bind(ir::MatmulOp matmul, ArrayRef<Follower> chain) {
  std::optional<Strided> c = resultView(matmul, chain);
  if (!c || !fitMatrix(*c))
    return std::nullopt;
  Sizes shape = sizesOf(matmul);
  Selected s;
  s.product.batch.assign(shape.begin(), shape.end() - 2);
  s.a = operandView(matmul.getA(), matmul.getTransA(), s.product.batch);
  s.b = operandView(matmul.getB(), matmul.getTransB(), s.product.batch);
  s.product.m = shape[shape.size() - 2], s.product.n = shape.back(), s.product.k = s.a.view.shape.back();
  s.product.a = s.a.view, s.product.b = s.b.view, s.product.c = *c;
  bool biased = llvm::any_of(chain, [](const Follower &f) { return f.kind == Follower::Bias; });
  if (s.product.c.strides.back() != 1) {
    if (biased)
      return std::nullopt;
    transposeProduct(s.product, s.a, s.b);
  }
  Product simple = s.product;
  simple.simplify();
  if (fit(simple) && simple.c.strides.back() == 1)
    s.product = simple;
  return s;
}

library::CallOp makeCall(ir::MatmulOp matmul, const Selected &s, ArrayRef<Follower> chain) {
  OpBuilder b(matmul);
  SmallVector<Value> operands{s.a.base, s.b.base};
  NamedAttrList attributes = callAttributes(matmul);
  attributes.erase("transA"), attributes.erase("transB");
  auto extra = [&](StringRef name, Value value) {
    attributes.set(name, b.getI64IntegerAttr(static_cast<int64_t>(operands.size())));
    operands.push_back(value);
  };
  for (const Follower &follower : chain) {
    if (follower.kind == Follower::Bias)
      extra("bias", follower.other);
    if (follower.kind == Follower::Accumulate || follower.kind == Follower::Sum) {
      extra("into", follower.other);
      attributes.set("accumulate", b.getUnitAttr());
    }
  }
  const Product &p = s.product;
  attributes.set("batch", b.getDenseI64ArrayAttr(p.batch));
  attributes.set("mnk", b.getDenseI64ArrayAttr({p.m, p.n, p.k}));
  attributes.set("a", viewAttr(b, p.a));
  attributes.set("b", viewAttr(b, p.b));
  attributes.set("c", viewAttr(b, p.c));
  Operation *last = chain.empty() ? matmul.getOperation() : chain.back().op;
  carrySharding(last, attributes);
  return library::CallOp::create(b, matmul.getLoc(), TypeRange{last->getResult(0).getType()}, operands,
                                 attributes.getAttrs());
}

} // namespace

void selectProduct(ir::MatmulOp matmul, std::map<Operation *, std::map<unsigned, library::CallOp>> &concats) {
  SmallVector<Follower> chain = followers(matmul);
  for (;; chain.pop_back()) {
    auto selected = bind(matmul, chain);
    if (!selected) {
      assert(!chain.empty() && "a product's own result always fits");
      continue;
    }
    library::CallOp call = makeCall(matmul, *selected, chain);
    if (!chain.empty() && chain.back().kind == Follower::Concat)
      concats[chain.back().op][chain.back().piece] = call;
    else
      lastResult(matmul, chain).replaceAllUsesWith(call->getResult(0));
    return;
  }
}

} // namespace cleave::passes
