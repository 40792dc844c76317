// Gradients of parameters that every step of an unrolled loop uses are sums over the steps. Sums of small matrix
// products, of weights, become one product of the concatenated rows; sums of rows, of biases, read the concatenation if
// there is one. Half sums are then rounded once, not at every addition.
#include "ir/graph/GraphBuilder.h"
#include "passes/select/Selection.h"
#include "passes/simplify/Simplify.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <numeric>

using namespace mlir;

namespace cleave::passes {

namespace {

/// The fewest products that are worth a concatenation.
constexpr int64_t fewest = 4;

/// The value behind reshapes, which have the same bytes.
Value bytesOf(Value value) {
  while (auto reshape = value.getDefiningOp<ir::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

/// Whether the product sums over the rows of both operands, which are matrices: a^T b.
bool sumsRows(ir::MatmulOp product) {
  return product.getTransA() && !product.getTransB() && ir::rankOf(product.getA()) == 2 &&
         ir::rankOf(product.getB()) == 2;
}

/// Products of the same types whose sum is to be computed. `top`: the last addition.
struct Sum {
  ir::AddOp top;
  SmallVector<ir::MatmulOp> products;
  SmallVector<Value> others; // further addends

  int64_t rows() { return ir::shapeOf(products[0].getA())[0]; }
  int64_t count() const { return static_cast<int64_t>(products.size()); }
  SmallVector<Value> lefts() {
    return llvm::map_to_vector(products, [](ir::MatmulOp product) -> Value { return product.getA(); });
  }
};

/// Where matrices stand in a concatenation along `dim` of pieces of one shape, whose first dimensions, `piece`, are the
/// matrices' rows. `places`: the number of the piece, by matrix.
struct Order {
  Sizes piece;
  int64_t dim = 0, pieces = 0;
  SmallVector<int64_t> places;
  ir::ConcatOp existing; // null if there is none yet
};

/// The products of `sum` one after the other.
Order inTurn(Sum &sum) {
  Order order{{sum.rows()}, 0, sum.count(), SmallVector<int64_t>(sum.products.size()), {}};
  std::iota(order.places.begin(), order.places.end(), 0);
  return order;
}

/// The dimensions of the rows in a piece of a concatenation, if its other dimensions hold `width` elements.
std::optional<Sizes> rowDims(Sizes piece, int64_t width) {
  int64_t columns = 1;
  while (columns < width && !piece.empty()) {
    columns *= piece.back();
    piece.pop_back();
  }
  return columns == width && !piece.empty() ? std::optional(piece) : std::nullopt;
}

/// The order of a concatenation that has all matrices, of one shape, among its pieces; empty if it does not fit.
std::optional<Order> orderOf(ir::ConcatOp concat, ArrayRef<Value> matrices) {
  const Sizes shape = sizesOf(concat.getInputs()[0]);
  const std::optional<Sizes> rows = rowDims(shape, ir::shapeOf(matrices[0])[1]);
  if (!rows || concat.getDim() >= rows->size())
    return std::nullopt;
  llvm::DenseMap<Value, int64_t> numbers;
  for (auto [i, piece] : llvm::enumerate(concat.getInputs()))
    if (sizesOf(piece) != shape || !numbers.try_emplace(bytesOf(piece), i).second)
      return std::nullopt;
  Order order{*rows, static_cast<int64_t>(concat.getDim()), static_cast<int64_t>(numbers.size()), {}, concat};
  for (Value matrix : matrices) {
    const auto number = numbers.find(bytesOf(matrix));
    if (number == numbers.end() || llvm::is_contained(order.places, number->second))
      return std::nullopt;
    order.places.push_back(number->second);
  }
  return order;
}

/// Whether rows of the concatenation are summed by another product: values there that are not finite are in its
/// result, too.
bool isSummed(ir::ConcatOp concat) {
  SmallVector<Value> next{concat.getResult()};
  while (!next.empty())
    for (Operation *user : next.pop_back_val().getUsers()) {
      if (auto reshape = dyn_cast<ir::ReshapeOp>(user))
        next.push_back(reshape.getResult());
      auto product = dyn_cast<ir::MatmulOp>(user);
      if (product && sumsRows(product) && bytesOf(product.getA()) == concat.getResult())
        return true;
    }
  return false;
}

/// The order of a concatenation that exists already, such as that of the gradients of all steps' inputs, with all of
/// the matrices; empty if there is none that `accept` accepts.
std::optional<Order> existingOrder(ArrayRef<Value> matrices, llvm::function_ref<bool(Order &)> accept) {
  llvm::SetVector<Value> values; // with the bytes of the first matrix
  values.insert(bytesOf(matrices[0]));
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      if (auto reshape = dyn_cast<ir::ReshapeOp>(user))
        values.insert(reshape.getResult());
      if (auto concat = dyn_cast<ir::ConcatOp>(user))
        if (auto order = orderOf(concat, matrices); order && accept(*order))
          return order;
    }
  return std::nullopt;
}

/// Compares the elements that are read and written: each addition reads and writes the result, the concatenations read
/// and write their operands.
bool pays(Sum &sum, Order &order) {
  const int64_t columns = ir::shapeOf(sum.products[0].getA())[1], width = ir::shapeOf(sum.products[0].getB())[1];
  const int64_t copied = order.pieces * sum.rows() * (order.existing ? width : columns + width);
  return copied < (sum.count() - 1) * columns * width;
}

/// The ops that must follow `position` if `value` is computed there: `value`'s users before it, and theirs. False if
/// one of them is more than a step on the way to the function's results.
bool usersToMove(Value value, Operation *position, llvm::SetVector<Operation *> &moved) {
  for (Operation *user : value.getUsers()) {
    if (user->getBlock() != position->getBlock())
      return false;
    if (position->isBeforeInBlock(user) || moved.contains(user))
      continue;
    if (!isa<ir::CastOp, ir::AddOp, ir::ReshapeOp, ir::TransposeOp>(user))
      return false;
    moved.insert(user);
    if (!usersToMove(user->getResult(0), position, moved))
      return false;
  }
  return true;
}

/// Moves the ops directly behind `last`, in their order.
void moveBehind(Operation *last, llvm::SetVector<Operation *> &ops) {
  SmallVector<Operation *> sorted = ops.takeVector();
  llvm::sort(sorted, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  for (Operation *op : sorted) {
    op->moveAfter(last);
    last = op;
  }
}

class Joiner {
public:
  Joiner(Sum &sum, Order &order) : sum(sum), order(order), e(OpBuilder(sum.top)) {}

  /// Replaces the sum. False if an existing concatenation comes too late for a user of the sum.
  bool run() {
    Operation *position = sum.top;
    llvm::SetVector<Operation *> users;
    if (order.existing && sum.top->isBeforeInBlock(order.existing)) {
      position = order.existing;
      if (!usersToMove(sum.top.getResult(), position, users))
        return false;
    }
    e.setOrigin(sum.products[0]);
    e.builder().setInsertionPointAfter(position);
    Value result = product();
    e.setOrigin(sum.top);
    for (Value other : sum.others)
      result = e.add(result, other);
    moveBehind(result.getDefiningOp(), users);
    sum.top.getResult().replaceAllUsesWith(result);
    return true;
  }

private:
  Value product() {
    ir::MatmulOp first = sum.products[0];
    Value a = order.existing ? order.existing.getResult() : concat(&ir::MatmulOp::getA);
    Value b = concat(&ir::MatmulOp::getB);
    const int64_t rows = order.pieces * sum.rows();
    return e.matmul(reshape(a, {rows, ir::shapeOf(first.getA())[1]}), reshape(b, {rows, ir::shapeOf(first.getB())[1]}),
                    true, false);
  }

  /// The operands in their order, with zeros where there are none.
  template <class Operand> Value concat(Operand operand) {
    Value like = (sum.products[0].*operand)();
    Sizes shape = order.piece;
    shape.push_back(ir::shapeOf(like)[1]);
    SmallVector<Value> pieces(order.pieces);
    for (auto [product, place] : llvm::zip(sum.products, order.places))
      pieces[place] = reshape((product.*operand)(), shape);
    for (Value &piece : pieces)
      if (!piece)
        piece = plain(e.constant(ir::tensorType(like).clone(shape), 0));
    shape[order.dim] *= order.pieces;
    return plain(e.op<ir::ConcatOp>(ir::tensorType(like).clone(shape), pieces, e.builder().getI64IntegerAttr(order.dim))
                     .getResult());
  }

  Value reshape(Value value, const Sizes &shape) {
    Value same = e.reshape(value, shape);
    return same == value ? value : plain(same);
  }

  /// A new value that does not have the sharding of the products' results.
  static Value plain(Value value) {
    dropShardings(value.getDefiningOp());
    return value;
  }

  Sum &sum;
  Order &order;
  ir::GraphBuilder e;
};

/// The sum that ends with this addition: its largest group of products of the same types.
Sum sumOf(ir::AddOp top) {
  const SmallVector<Value> leaves = addends(top);
  llvm::MapVector<std::pair<Type, Type>, SmallVector<ir::MatmulOp>> groups;
  for (Value leaf : leaves)
    if (auto product = leaf.getDefiningOp<ir::MatmulOp>(); product && leaf.hasOneUse() && sumsRows(product))
      groups[{product.getA().getType(), product.getB().getType()}].push_back(product);
  Sum sum{top, {}, {}};
  for (auto &[types, products] : groups)
    if (products.size() > sum.products.size())
      sum.products = products;
  for (Value leaf : leaves)
    if (!llvm::is_contained(sum.products, leaf.getDefiningOp()))
      sum.others.push_back(leaf);
  return sum;
}

/// One product for the products of a sum. An existing concatenation may have some pieces more than there are products:
/// the others are multiplied by zero.
void joinProducts(ir::AddOp top) {
  Sum sum = sumOf(top);
  if (sum.count() < fewest)
    return;
  auto existing = existingOrder(sum.lefts(), [&](Order &order) {
    return isSummed(order.existing) && (order.pieces - sum.count()) * fewest <= sum.count();
  });
  if (existing && pays(sum, *existing) && Joiner(sum, *existing).run())
    return;
  if (Order order = inTurn(sum); pays(sum, order))
    Joiner(sum, order).run();
}

/// The sums of columns of a sum of matrices are those of the concatenation that has these matrices and no others.
void joinRows(ir::ReduceOp reduce) {
  auto top = reduce.getInput().getDefiningOp<ir::AddOp>();
  if (!top || !top.getResult().hasOneUse() || reduce.getKind() != ir::ReduceKind::Sum ||
      ir::rankOf(reduce.getInput()) != 2 || reduce.getDims() != ArrayRef<int64_t>{0})
    return;
  const SmallVector<Value> matrices = addends(top);
  if (static_cast<int64_t>(matrices.size()) < fewest)
    return;
  auto order =
      existingOrder(matrices, [&](Order &found) { return found.pieces == static_cast<int64_t>(matrices.size()); });
  if (!order)
    return;
  ir::ConcatOp concat = order->existing;
  llvm::SetVector<Operation *> users;
  Operation *position = reduce->isBeforeInBlock(concat) ? concat : reduce;
  if (!usersToMove(reduce.getResult(), position, users))
    return;
  ir::GraphBuilder e{OpBuilder(reduce)};
  e.setOrigin(reduce);
  e.builder().setInsertionPointAfter(position);
  Value sums = e.sum(concat.getResult(), ir::dimsExcept(static_cast<int64_t>(order->piece.size())));
  if (Value same = e.reshape(sums, ir::shapeOf(reduce.getResult())); same != sums) {
    dropShardings(sums.getDefiningOp());
    sums = same;
  }
  moveBehind(sums.getDefiningOp(), users);
  reduce.getResult().replaceAllUsesWith(sums);
}

} // namespace

void joinSteps(func::FuncOp function) {
  SmallVector<ir::AddOp> tops;
  for (auto add : function.front().getOps<ir::AddOp>())
    if (!add.getResult().hasOneUse() || !isa<ir::AddOp>(*add.getResult().user_begin()))
      tops.push_back(add);
  for (ir::AddOp top : tops)
    joinProducts(top);
  for (ir::ReduceOp reduce : llvm::to_vector(function.front().getOps<ir::ReduceOp>()))
    joinRows(reduce);
  eraseDeadOps(function);
}

} // namespace cleave::passes
