// One walk in program order. A convolution or pool converts its operands to channels last; its result is then known in
// both layouts, the old one through a transpose. An op that supports the new layout uses it if one of its operands has
// it. Simplification removes unused transposes.
#include "passes/layout/Layout.h"

#include "ir/Phase.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/rewrite/Values.h"
#include "runtime/base/Error.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_CHANNELSLASTPASS
#include "passes/Passes.h.inc"

namespace {

/// [n, c, ...] to [n, ..., c].
template <typename T> SmallVector<T> turned(ArrayRef<T> list) {
  SmallVector<T> result(list);
  std::rotate(result.begin() + 1, result.begin() + 2, result.end());
  return result;
}

/// The dimension of [n, ..., c] that is dimension `dim` of [n, c, ...].
int64_t place(int64_t dim, int64_t rank) { return dim == 0 ? 0 : dim == 1 ? rank - 1 : dim - 1; }

/// Dimension i of [n, ..., c] is dimension toLast[i] of [n, c, ...], and the reverse.
SmallVector<int64_t> toLast(int64_t rank) { return turned<int64_t>(llvm::to_vector(llvm::seq(rank))); }
SmallVector<int64_t> toSecond(int64_t rank) {
  return llvm::map_to_vector(llvm::seq(rank), [&](int64_t dim) { return place(dim, rank); });
}

class Rewriter {
public:
  explicit Rewriter(func::FuncOp function) : function(function), e(OpBuilder(function)) {}

  void run() {
    SmallVector<Operation *> ops;
    for (Operation &op : function.front().without_terminator())
      ops.push_back(&op);
    for (Operation *op : ops)
      visit(op);
  }

private:
  func::FuncOp function;
  GraphBuilder e;
  DenseMap<Value, Value> last; // keyed by the value in the old layout

  static bool hasLayout(Value value) { return rankOf(value) > 2; }
  /// Whether a reshape regroups positions only: [n, c, 1, t] to [n, c, t], [n, c, h, w] to [n, c, h w].
  static bool keepsChannels(ir::ReshapeOp reshape) {
    return hasLayout(reshape.getInput()) && hasLayout(reshape.getResult()) &&
           shapeOf(reshape.getInput()).take_front(2) == shapeOf(reshape.getResult()).take_front(2);
  }
  bool isKnown(Value value) const { return last.contains(value); }
  bool anyKnown(Operation *op) const {
    return llvm::any_of(op->getOperands(), [&](Value v) { return isKnown(v); });
  }

  /// A reshape if no element moves, as for weights of 1x1 windows.
  Value transpose(Value value, ArrayRef<int64_t> permutation) {
    const Dims shape = shapeOf(value);
    SmallVector<int64_t> sizes, moved;
    for (int64_t dim : permutation) {
      sizes.push_back(shape[dim]);
      if (shape[dim] != 1)
        moved.push_back(dim);
    }
    return llvm::is_sorted(moved) ? e.reshape(value, sizes) : e.op<ir::TransposeOp>(value, permutation).getResult();
  }

  /// `value` in channels last, for `user`. Arguments are converted for every user, because the conversion belongs to
  /// the user's layer and stage.
  Value get(Value value, Operation *user) {
    if (auto known = last.find(value); known != last.end())
      return known->second;
    Operation *def = value.getDefiningOp();
    Operation *origin = def ? def : user;
    e.setOrigin(origin);
    def ? e.builder().setInsertionPointAfter(def) : e.builder().setInsertionPoint(user);
    if (!def)
      return transpose(value, toLast(rankOf(value)));
    return last[value] = remade(value, def);
  }

  /// Recreates constants, indices, broadcasts and reshapes of positions, transposes all other values.
  Value remade(Value value, Operation *def) {
    const int64_t rank = rankOf(value);
    if (auto reshape = dyn_cast<ir::ReshapeOp>(def); reshape && keepsChannels(reshape)) {
      Value input = get(reshape.getInput(), def);
      e.setOrigin(def);
      e.builder().setInsertionPointAfter(def);
      return e.reshape(input, turned(shapeOf(value)));
    }
    const RankedTensorType type = RankedTensorType::get(turned(shapeOf(value)), tensorType(value).getElementType());
    if (auto constant = dyn_cast<ir::ConstantOp>(def))
      if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
        return e.op<ir::ConstantOp>(type, splat.resizeSplat(type)).getResult();
    if (auto iota = dyn_cast<ir::IotaOp>(def))
      return e.op<ir::IotaOp>(type, iota.getOffset(), static_cast<uint64_t>(place(iota.getDim(), rank))).getResult();
    if (auto broadcast = dyn_cast<ir::BroadcastOp>(def)) { // of its operand, transposed if its dimensions swap places
      SmallVector<int64_t> dims, order;
      for (int64_t dim : broadcast.getDims())
        order.push_back(order.size()), dims.push_back(place(dim, rank));
      llvm::sort(order, [&](int64_t a, int64_t b) { return dims[a] < dims[b]; });
      Value input = transpose(broadcast.getInput(), order); // itself if they do not
      llvm::sort(dims);
      return e.op<ir::BroadcastOp>(type, input, dims).getResult();
    }
    return transpose(value, toLast(rank));
  }

  void visit(Operation *op) {
    const bool windows = isa<ir::Conv2dOp, ir::Conv2dInputGradOp, ir::MaxPool2dOp, ir::AvgPool2dOp>(op);
    if (!windows && !anyKnown(op))
      return;
    if (auto reduce = dyn_cast<ir::ReduceOp>(op))
      return turnReduce(reduce);
    if (auto reshape = dyn_cast<ir::ReshapeOp>(op))
      return turnReshape(reshape);
    if (windows || op->hasTrait<OpTrait::Elementwise>() ||
        isa<ir::BatchNormOp, ir::ConcatOp, ir::PadOp, ir::SliceOp, ir::ShardHintOp>(op))
      turn(op);
  }

  /// Converts an op's dimension attributes to the new layout.
  static void turnAttributes(Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<ir::Conv2dOp, ir::Conv2dInputGradOp, ir::MaxPool2dOp, ir::AvgPool2dOp, ir::BatchNormOp>(
            [](auto made) { made->setAttr(ir::channelsLast, UnitAttr::get(made->getContext())); })
        .Case([](ir::ConcatOp concat) { concat.setDim(place(concat.getDim(), rankOf(concat))); })
        .Case([](ir::PadOp pad) {
          pad.setLow(turned(pad.getLow()));
          pad.setHigh(turned(pad.getHigh()));
        })
        .Case([](ir::SliceOp slice) {
          slice.setStarts(turned(slice.getStarts()));
          slice.setSizes(turned(slice.getSizes()));
        })
        .Case([](ir::ShardHintOp hint) {
          hint.setShardingAttr(ArrayAttr::get(hint->getContext(), turned(hint.getSharding().getValue())));
        });
  }

  /// Converts an op, with every operand that has one in the new layout.
  void turn(Operation *op) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(hasLayout(operand) ? get(operand, op) : operand);
    e.builder().setInsertionPoint(op);
    Operation *made = e.builder().clone(*op);
    made->setOperands(operands);
    turnAttributes(made);
    e.setOrigin(op);
    for (auto [before, after] : llvm::zip_equal(op->getResults(), made->getResults())) {
      if (!hasLayout(before)) {
        before.replaceAllUsesWith(after);
        continue;
      }
      after.setType(RankedTensorType::get(turned(shapeOf(before)), tensorType(before).getElementType()));
      replace(before, after);
    }
    op->erase();
  }

  /// Users of `before` get `after`, which is in the new layout, through a transpose.
  void replace(Value before, Value after) {
    Value back = transpose(after, toSecond(rankOf(after)));
    before.replaceAllUsesWith(back);
    last[back] = after;
  }

  void turnReshape(ir::ReshapeOp reshape) {
    if (!keepsChannels(reshape))
      return;
    Value input = get(reshape.getInput(), reshape);
    e.setOrigin(reshape);
    e.builder().setInsertionPoint(reshape);
    replace(reshape.getResult(), e.reshape(input, turned(shapeOf(reshape.getResult()))));
    reshape.erase();
  }

  /// Converts a reduction whose remaining dimensions keep their order.
  void turnReduce(ir::ReduceOp reduce) {
    SmallVector<int64_t> dims, kept;
    const int64_t rank = rankOf(reduce.getInput());
    for (int64_t dim = 0; dim < rank; ++dim)
      (llvm::is_contained(reduce.getDims(), dim) ? dims : kept).push_back(place(dim, rank));
    if (!llvm::is_sorted(kept))
      return;
    llvm::sort(dims);
    Value input = get(reduce.getInput(), reduce);
    e.setOrigin(reduce);
    e.builder().setInsertionPoint(reduce);
    reduce.getResult().replaceAllUsesWith(e.reduce(reduce.getKind(), input, dims));
    reduce.erase();
  }
};

struct ChannelsLastPass : ThrowingPass<impl::ChannelsLastPassBase<ChannelsLastPass>> {
  void work() override {
    ir::requirePhase(getOperation(), "channels-last", ir::Phase::Traced);
    useChannelsLast(getOperation());
  }
};

} // namespace

void useChannelsLast(ModuleOp module) {
  for (const char *name : {"forward", "eval"})
    if (auto function = module.lookupSymbol<func::FuncOp>(name))
      Rewriter(function).run();
}

} // namespace cleave::passes
