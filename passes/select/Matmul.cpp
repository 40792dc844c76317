// Matrix products: which memory the operands are read from and the result is written to, and with what strides.
#include "passes/rewrite/Emitter.h"
#include "passes/select/Detail.h"

using namespace mlir;

namespace cleave::passes {

namespace {

/// What is done to a product's result, step by step; each the only use of what came before (but for gelu).
struct Follower {
  enum Kind { Reshape, Transpose, Widen, Bias, Accumulate, Sum, Concat, Relu, Gelu, GeluGradient } kind;
  Operation *op;
  Value other;        // bias, gradient argument, the other addend, or what the gradient of gelu was the input of
  unsigned piece = 0; // of a concatenation

  /// Done to each sum before it is rounded.
  bool isEpilogue() const { return kind >= Relu; }
};

/// A product already selected whose only use is the sum with this one: this one is added to its memory.
Value earlierProduct(ir::AddOp add, Value value, Operation *product) {
  Value other = add.getLhs() == value ? add.getRhs() : add.getLhs();
  if (!other.getDefiningOp<library::MatmulOp>() || !other.hasOneUse() || !definedBefore(other, product))
    return {};
  return other;
}

/// The only gelu of this value in the tanh form, which is the one that cuBLASLt has.
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

/// An activation, or the gradient of one. Others may use what gelu is applied to: the library writes it too.
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

/// A product in half that is cast to f32 and returned, or added to the gradient so far: the sums are f32 already. (What
/// a kernel casts as it reads stays half in memory.)
bool isWidening(Operation *op) {
  auto cast = dyn_cast<ir::CastOp>(op);
  if (!cast || !cast.getResult().hasOneUse() || !getElementTypeOrSelf(cast.getResult()).isF32() ||
      !isa<Float16Type, BFloat16Type>(getElementTypeOrSelf(cast.getInput())))
    return false;
  return isa<func::ReturnOp>(*cast.getResult().getUsers().begin()) || onlyAccumulation(cast.getResult()).first;
}

/// What may still follow.
struct Following {
  bool bias = true;      // rows are still rows, and there is no bias yet
  bool epilogue = false; // the library has them
  bool widen = false;    // the library has results in f32, and nothing was added yet
  bool gradient = true;  // of an activation: nothing was added yet
  bool others = true;    // all that is not a reshape
};

std::optional<Follower> follow(Value value, Operation *product, const Following &may) {
  if (may.epilogue)
    if (auto found = followEpilogue(value, product); found && (may.gradient || found->kind != Follower::GeluGradient))
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
  if (may.widen && isWidening(op))
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
  Following may{.epilogue = options.epilogues, .widen = options.widen};
  while (auto next = follow(value, matmul, may)) {
    if (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).empty())
      break;
    if (next->kind == Follower::Transpose || next->kind == Follower::Bias ||
        (next->kind == Follower::Reshape && sizesOf(next->op->getResult(0)).back() != sizesOf(matmul).back()))
      may.bias = false;
    if (next->kind == Follower::Bias)
      may.gradient = may.widen = false;
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

/// The follower that is an epilogue; the chain's end where there is none.
const Follower *epilogueOf(ArrayRef<Follower> chain) {
  return llvm::find_if(chain, [](const Follower &follower) { return follower.isEpilogue(); });
}

struct Selected {
  Product product;
  OperandView a, b;
  Strided aux; // how what the epilogue reads or writes beside the result lies
  bool transposed = false;
};

/// Rows begin at multiples of 16 bytes, as the kernels with epilogues want it (cuBLAS documentation: leading dimensions
/// of auxiliary matrices; the matrix units' alignment).
bool alignedRows(const Strided &view, int64_t elementBytes) {
  const int64_t row = std::max(view.strides[0], view.strides[1]);
  return view.offset * elementBytes % 16 == 0 && row * elementBytes % 16 == 0 && row % 8 == 0;
}

/// Whether the library does the epilogue of a product in its simplest form (`full`: before that), one matrix of rows
/// that lie together; where it does, how its auxiliary matrix lies.
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
      epilogue != chain.end() && (s.transposed || !bindEpilogue(s, full, matmul, chain, epilogue)))
    return std::nullopt;
  return s;
}

/// Whether a value's sums over rows would be a kernel of their own: a library wrote it, or it is made from sums over
/// its columns, by a kernel that goes by rows.
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

/// The gradient in f32 of a bias that is the sums over the rows of `matmul`'s transposed left operand, a value in half.
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

/// The operands beside a and b.
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

/// Replaces the bias's gradient, and what accumulates it, by the call's second result.
void replaceSums(ir::CastOp sums, library::MatmulOp call) {
  if (auto add = onlyAccumulation(sums.getResult()).first; add && add->isBeforeInBlock(call))
    add->moveAfter(call);
  sums.getResult().replaceAllUsesWith(call.getSecond());
}

/// `sums`: the gradient of the bias, if the call computes it.
library::MatmulOp makeCall(ir::MatmulOp matmul, const Selected &s, ArrayRef<Follower> chain, ir::CastOp sums) {
  const Follower *epilogue = epilogueOf(chain) == chain.end() ? nullptr : epilogueOf(chain);
  const Others others = othersOf(chain);
  // Where gelu leaves its input for others, the library writes that too.
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
