// One walk in program order. A convolution converts its operands to channels last; its result is then known in both
// layouts, the old one through a transpose. An op that supports the new layout uses it if one of its operands has it.
// Simplification removes unused transposes.
#include "passes/layout/Layout.h"

#include "ir/Phase.h"
#include "passes/rewrite/ThrowingPass.h"
#include "passes/rewrite/Values.h"
#include "runtime/base/Error.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/TypeSwitch.h"

#include <array>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_CHANNELSLASTPASS
#include "passes/Passes.h.inc"

namespace {

/// Dimension i of [n, h, w, c] is dimension toLast[i] of [n, c, h, w], and the reverse.
constexpr std::array<int64_t, 4> toLast{0, 2, 3, 1}, toSecond{0, 3, 1, 2};

template <typename T> SmallVector<T> turned(ArrayRef<T> list) {
  SmallVector<T> result;
  for (int64_t dim : toLast)
    result.push_back(list[dim]);
  return result;
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

  static bool hasRank4(Value value) { return rankOf(value) == 4; }
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
      return transpose(value, toLast);
    return last[value] = remade(value, def);
  }

  /// Recreates constants, indices and broadcasts, transposes all other values.
  Value remade(Value value, Operation *def) {
    const RankedTensorType type = RankedTensorType::get(turned(shapeOf(value)), tensorType(value).getElementType());
    if (auto constant = dyn_cast<ir::ConstantOp>(def))
      if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
        return e.op<ir::ConstantOp>(type, splat.resizeSplat(type)).getResult();
    if (auto iota = dyn_cast<ir::IotaOp>(def))
      return e.op<ir::IotaOp>(type, iota.getOffset(), static_cast<uint64_t>(toSecond[iota.getDim()])).getResult();
    if (auto broadcast = dyn_cast<ir::BroadcastOp>(def)) {
      SmallVector<int64_t> dims;
      for (int64_t dim : broadcast.getDims())
        dims.push_back(toSecond[dim]);
      if (llvm::is_sorted(dims))
        return e.op<ir::BroadcastOp>(type, broadcast.getInput(), dims).getResult();
    }
    return transpose(value, toLast);
  }

  void visit(Operation *op) {
    const bool convolution = isa<ir::Conv2dOp, ir::Conv2dInputGradOp>(op);
    if (!convolution && !anyKnown(op))
      return;
    if (auto reduce = dyn_cast<ir::ReduceOp>(op))
      return turnReduce(reduce);
    if (convolution || op->hasTrait<OpTrait::Elementwise>() ||
        isa<ir::MaxPool2dOp, ir::AvgPool2dOp, ir::BatchNormOp, ir::ConcatOp, ir::PadOp, ir::SliceOp, ir::ShardHintOp>(
            op))
      turn(op);
  }

  /// Converts an op's dimension attributes to the new layout.
  static void turnAttributes(Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<ir::Conv2dOp, ir::Conv2dInputGradOp, ir::MaxPool2dOp, ir::AvgPool2dOp, ir::BatchNormOp>(
            [](auto made) { made->setAttr(ir::channelsLast, UnitAttr::get(made->getContext())); })
        .Case([](ir::ConcatOp concat) { concat.setDim(toSecond[concat.getDim()]); })
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

  /// Converts an op, with every operand of rank 4 in the new layout.
  void turn(Operation *op) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(hasRank4(operand) ? get(operand, op) : operand);
    e.builder().setInsertionPoint(op);
    Operation *made = e.builder().clone(*op);
    made->setOperands(operands);
    turnAttributes(made);
    e.setOrigin(op);
    for (auto [before, after] : llvm::zip_equal(op->getResults(), made->getResults())) {
      if (!hasRank4(before)) {
        before.replaceAllUsesWith(after);
        continue;
      }
      after.setType(RankedTensorType::get(turned(shapeOf(before)), tensorType(before).getElementType()));
      Value back = transpose(after, toSecond);
      before.replaceAllUsesWith(back);
      last[back] = after;
    }
    op->erase();
  }

  /// Converts a reduction whose remaining dimensions keep their order.
  void turnReduce(ir::ReduceOp reduce) {
    SmallVector<int64_t> dims, kept;
    for (int64_t dim = 0; dim < 4; ++dim)
      (llvm::is_contained(reduce.getDims(), dim) ? dims : kept).push_back(toSecond[dim]);
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
