// Selects matrix products: the memory from which operands are read and to which the result is written, with strides.
#include "passes/rewrite/Values.h"
#include "passes/select/Selection.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// An op that follows a product and can become part of the call. Each is the only use of the one before, except gelu.
struct Follower {
  enum Kind { Reshape, Transpose, Widen, Bias, Accumulate, Sum, Concat, Relu, Gelu, GeluGradient } kind;
  Operation *op;
  Value other;        // bias, gradient argument, the other addend, or the input of gelu (for its gradient)
  unsigned piece = 0; // of a concatenation

  /// Applied to each sum before it is rounded.
  bool isEpilogue() const { return kind >= Relu; }
};

/// The other addend, if it is a selected product whose only use is this sum: this product accumulates into it.
Value earlierProduct(ir::AddOp add, Value value, Operation *product) {
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  if (!other.getDefiningOp<library::MatmulOp>() || !other.hasOneUse() || !definedBefore(other, product))
    return {};
  return other;
}

/// The only gelu of this value in the tanh form (the form that cuBLASLt has).
ir::GeluOp tanhGelu(Value value) {
  ir::GeluOp found;
  for (Operation *user : value.getUsers())
    if (auto gelu = dyn_cast<ir::GeluOp>(user); gelu && library::isActivation(gelu)) {
      if (found)
        return {};
      found = gelu;
    }
  return found;
}

/// An activation or the gradient of one. Gelu's input may have other users: the library writes it, too.
std::optional<Follower> followEpilogue(Value value, Operation *product) {
  if (ir::GeluOp gelu = tanhGelu(value))
    return Follower{Follower::Gelu, gelu, {}};
  if (!value.hasOneUse())
    return std::nullopt;
  OpOperand &use = *value.use_begin();
  if (isa<ir::ReluOp>(use.getOwner()))
    return Follower{Follower::Relu, use.getOwner(), {}};
  auto gradient = dyn_cast<ir::GeluGradOp>(use.getOwner());
  if (gradient && gradient.getTanh() && use.getOperandNumber() == 0 && definedBefore(gradient.getInput(), product))
    return Follower{Follower::GeluGradient, gradient, gradient.getInput()};
  return std::nullopt;
}

/// Which followers are still possible.
struct Following {
  bool bias = true;      // the last dimension is still the product's, and there is no bias yet
  bool epilogue = false; // the library has epilogues
  bool plain = true;     // nothing was added yet: f32 and the gradient of an activation are possible
  bool others = true;    // anything but a reshape
};

std::optional<Follower> follow(Value value, Operation *product, const Following &may) {
  if (may.epilogue)
    if (auto found = followEpilogue(value, product); found && (may.plain || found->kind != Follower::GeluGradient))
      return found;
  if (!value.hasOneUse())
    return std::nullopt;
  OpOperand &use = *value.use_begin();
  Operation *op = use.getOwner();
  if (isa<ir::ReshapeOp>(op))
    return Follower{Follower::Reshape, op, {}};
  if (!may.others)
    return std::nullopt;
  if (isa<ir::TransposeOp>(op))
    return Follower{Follower::Transpose, op, {}};
  if (isa<ir::ConcatOp>(op))
    return Follower{Follower::Concat, op, {}, use.getOperandNumber()};
  if (may.plain && isWidening(op))
    return Follower{Follower::Widen, op, {}};
  auto add = dyn_cast<ir::AddOp>(op);
  if (!add)
    return std::nullopt;
  const int64_t last = static_cast<int64_t>(sizesOf(value).size()) - 1;
  if (Value bias = may.bias ? library::addedVector(add, value, last) : Value(); bias && definedBefore(bias, product))
    return Follower{Follower::Bias, op, bias};
  if (auto [sum, gradient] = onlyAccumulation(value); sum)
    return Follower{Follower::Accumulate, op, gradient};
  if (Value earlier = earlierProduct(add, value, product))
    return Follower{Follower::Sum, op, earlier};
  return std::nullopt;
}

SmallVector<Follower> followers(ir::MatmulOp matmul, SelectOptions options) {
  SmallVector<Follower> chain;
  Value value = matmul.getResult();
  Following may{.epilogue = options.epilogues};
  while (auto next = follow(value, matmul, may)) {
    if (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).empty())
      break;
    if (next->kind == Follower::Transpose || next->kind == Follower::Bias ||
        (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).back() != sizesOf(matmul).back()))
      may.bias = false;
    if (next->kind == Follower::Bias)
      may.plain = false;
    if (next->kind == Follower::Widen)
      may.bias = may.epilogue = false;
    if (next->isEpilogue())
      may.epilogue = may.others = false;
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

/// The view of the product's own result in the memory of the last follower's result.
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

/// The farthest tensor behind the operand that a library can read, with a view of [batch..., rows, columns].
OperandView operandView(Value operand, bool transposed, const Sizes &batch) {
  return farthestView(operand, [&](Strided view) -> std::optional<Strided> {
    size_t r = view.shape.size();
    if (transposed)
      std::swap(view.shape[r - 2], view.shape[r - 1]), std::swap(view.strides[r - 2], view.strides[r - 1]);
    if (r == 2 && !batch.empty()) { // shared by all of the batch
      view.shape.insert(view.shape.begin(), batch.begin(), batch.end());
      view.strides.insert(view.strides.begin(), batch.size(), 0);
    }
    return fitMatrix(view) ? std::optional(view) : std::nullopt;
  });
}

bool fit(Product &product) { return fitMatrix(product.a) && fitMatrix(product.b) && fitMatrix(product.c); }

/// Replaces c = a b by c^T = b^T a^T, for a result that is column-major.
void transposeProduct(Product &product, OperandView &a, OperandView &b) {
  std::swap(a, b);
  std::swap(product.a, product.b), std::swap(product.m, product.n);
  for (Strided *view : {&product.a, &product.b, &product.c}) {
    size_t r = view->shape.size();
    std::swap(view->shape[r - 2], view->shape[r - 1]), std::swap(view->strides[r - 2], view->strides[r - 1]);
  }
}

/// The follower that is an epilogue; null if there is none.
const Follower *epilogueOf(ArrayRef<Follower> chain) {
  const Follower *found = llvm::find_if(chain, [](const Follower &follower) { return follower.isEpilogue(); });
  return found == chain.end() ? nullptr : found;
}

struct Selected {
  Product product;
  OperandView a, b;
  Strided aux; // of the auxiliary matrix that the epilogue reads or writes
  bool transposed = false;
};

/// Whether rows begin at multiples of 16 bytes, which kernels with epilogues need (cuBLAS documentation: leading
/// dimensions of auxiliary matrices, alignment for tensor cores).
bool alignedRows(const Strided &view, int64_t elementBytes) {
  const int64_t row = std::max(view.strides[0], view.strides[1]);
  return view.offset * elementBytes % 16 == 0 && row * elementBytes % 16 == 0 && row % 8 == 0;
}

/// Whether the library can apply the epilogue: the simplified product is one matrix, row-major and aligned. Sets the
/// view of the auxiliary matrix. `full`: the product before it was simplified.
bool bindEpilogue(Selected &s, const Product &full, ir::MatmulOp matmul, ArrayRef<Follower> chain,
                  const Follower *epilogue) {
  auto type = cast<RankedTensorType>(matmul.getType());
  const int64_t bytes = type.getElementTypeBitWidth() / 8;
  Product beside = full;
  auto view = resultView(matmul, chain.take_front(static_cast<size_t>(epilogue - chain.begin())));
  if (!view)
    return false;
  beside.c = *view;
  beside.simplify();
  for (Product *product : {&s.product, &beside})
    if (!product->batch.empty() || !fit(*product) || product->c.strides.back() != 1 || !alignedRows(product->c, bytes))
      return false;
  s.aux = beside.c;
  return beside.m == s.product.m && beside.n == s.product.n && alignedRows(s.product.a, bytes) &&
         alignedRows(s.product.b, bytes);
}

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
  s.transposed = s.product.c.strides.back() != 1;
  if (s.transposed) {
    if (biased)
      return std::nullopt;
    transposeProduct(s.product, s.a, s.b);
  }
  const Product full = s.product;
  Product simple = full;
  simple.simplify();
  if (fit(simple) && simple.c.strides.back() == 1)
    s.product = simple;
  if (const Follower *epilogue = epilogueOf(chain);
      epilogue && (s.transposed || !bindEpilogue(s, full, matmul, chain, epilogue)))
    return std::nullopt;
  return s;
}

/// Whether summing a value over its rows would take a separate kernel: a library call wrote the value, or the kernel
/// that computes it reduces its columns and so works row by row.
bool summedAlone(Value value) {
  const auto isFused = [](Operation *op) {
    return op && (op->hasTrait<OpTrait::Elementwise>() || isa<ir::BroadcastOp, ir::ReshapeOp>(op));
  };
  while (auto reshape = value.getDefiningOp<ir::ReshapeOp>())
    value = reshape.getInput();
  if (!isFused(value.getDefiningOp()))
    return true;
  SmallVector<Value> next{value};
  SmallPtrSet<Operation *, 16> seen;
  while (!next.empty()) {
    Operation *op = next.pop_back_val().getDefiningOp();
    if (auto reduce = dyn_cast_or_null<ir::ReduceOp>(op);
        reduce && llvm::is_contained(reduce.getDims(), rankOf(reduce.getInput()) - 1))
      return true;
    if (isFused(op) && seen.insert(op).second)
      llvm::append_range(next, op->getOperands());
  }
  return false;
}

/// The gradient of a bias: sums in f32 over the rows of the product's left operand, which is transposed and half.
ir::CastOp biasGradient(ir::MatmulOp matmul) {
  Value rows = matmul.getA();
  if (!matmul.getTransA() || rankOf(rows) != 2 || !summedAlone(rows))
    return {};
  for (;; rows = rows.getDefiningOp()->getOperand(0)) {
    for (Operation *user : rows.getUsers()) {
      auto reduce = dyn_cast<ir::ReduceOp>(user);
      if (!reduce || reduce.getKind() != ir::ReduceKind::Sum || !reduce.getResult().hasOneUse() ||
          rankOf(reduce.getResult()) != 1 || llvm::is_contained(reduce.getDims(), rankOf(rows) - 1) ||
          sizesOf(reduce.getResult())[0] != sizesOf(matmul.getResult())[0])
        continue;
      if (auto cast = dyn_cast<ir::CastOp>(*reduce.getResult().getUsers().begin()); cast && isWidening(cast))
        return cast;
    }
    if (!isa_and_nonnull<ir::ReshapeOp>(rows.getDefiningOp()))
      return {};
  }
}

library::Epilogue kindOf(const Follower *epilogue) {
  if (!epilogue)
    return library::Epilogue::None;
  return epilogue->kind == Follower::Relu   ? library::Epilogue::Relu
         : epilogue->kind == Follower::Gelu ? library::Epilogue::Gelu
                                            : library::Epilogue::GeluGradient;
}

/// Operands other than a and b.
struct Others {
  Value bias, into, aux;
};

Others othersOf(ArrayRef<Follower> chain) {
  Others others;
  for (const Follower &follower : chain) {
    if (follower.kind == Follower::Bias)
      others.bias = follower.other;
    if (follower.kind == Follower::Accumulate || follower.kind == Follower::Sum)
      others.into = follower.other;
    if (follower.kind == Follower::GeluGradient)
      others.aux = follower.other;
  }
  return others;
}

/// Replaces the gradient of the bias with the second result of the call. An accumulating add moves behind the call.
void replaceSums(ir::CastOp sums, library::MatmulOp call) {
  if (auto add = onlyAccumulation(sums.getResult()).first; add && add->isBeforeInBlock(call))
    add->moveAfter(call);
  sums.getResult().replaceAllUsesWith(call.getSecond());
}

/// `sums`: the gradient of the bias, if the call computes it, too.
library::MatmulOp makeCall(ir::MatmulOp matmul, const Selected &s, ArrayRef<Follower> chain, ir::CastOp sums) {
  const Follower *epilogue = epilogueOf(chain);
  const Others others = othersOf(chain);
  // If gelu's input has other users, the library writes it, too.
  Value left = epilogue && epilogue->kind == Follower::Gelu ? epilogue->op->getOperand(0) : Value();
  if (left && left.hasOneUse())
    left = {};
  SmallVector<Value> results{lastResult(matmul, chain)};
  if (left || sums)
    results.push_back(sums ? Value(sums.getResult()) : left);
  OpBuilder b(matmul);
  auto view = [&](const Strided &strided) { return library::ViewAttr::get(b.getContext(), strided); };
  const Product &p = s.product;
  auto call = library::MatmulOp::create(b, matmul.getLoc(), results[0].getType(),
                                        results.size() > 1 ? results[1].getType() : Type(), s.a.base, view(p.a),
                                        s.b.base, view(p.b), others.bias, others.into, others.aux, view(p.c),
                                        left || others.aux ? view(s.aux) : library::ViewAttr(), p.batch, p.m, p.n, p.k,
                                        others.into != nullptr, kindOf(epilogue), sums != nullptr);
  carryMarks(matmul, call);
  carryShardings(results, call);
  if (left)
    left.replaceAllUsesExcept(call.getSecond(), epilogue->op);
  if (sums)
    replaceSums(sums, call);
  return call;
}

} // namespace

void selectProduct(ir::MatmulOp matmul, WrittenPieces &concats, SelectOptions options) {
  SmallVector<Follower> chain = followers(matmul, options);
  for (;; chain.pop_back()) {
    auto selected = bind(matmul, chain);
    if (!selected) {
      assert(!chain.empty() && "a product's own result always fits");
      continue;
    }
    const bool widened = llvm::any_of(chain, [](const Follower &f) { return f.kind == Follower::Widen; });
    const bool rows = options.epilogues && widened && selected->product.batch.empty() && !selected->transposed;
    library::MatmulOp call = makeCall(matmul, *selected, chain, rows ? biasGradient(matmul) : ir::CastOp());
    if (!chain.empty() && chain.back().kind == Follower::Concat)
      concats[chain.back().op][chain.back().piece] = call;
    else
      lastResult(matmul, chain).replaceAllUsesWith(call.getResult());
    return;
  }
}

} // namespace cleave::passes
