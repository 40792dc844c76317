// Algebraic rewrites that involve more than one op. Rewrites of single ops are folders and canonicalisers in ir/graph.
#include "passes/rewrite/Values.h"
#include "passes/simplify/Simplify.h"

using namespace mlir;

namespace cleave::passes {
namespace {

/// An emitter before `op` that reports to the rewriter.
GraphBuilder builderAt(Operation *op, PatternRewriter &rewriter) {
  GraphBuilder e{OpBuilder(op, rewriter.getListener())};
  e.setOrigin(op);
  return e;
}

/// broadcast(broadcast(x)) is one broadcast.
struct BroadcastOfBroadcast : OpRewritePattern<ir::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::BroadcastOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<ir::BroadcastOp>();
    if (!inner)
      return failure();
    llvm::SmallVector<int64_t> dims;
    for (int64_t dim : inner.getDims())
      dims.push_back(op.getDims()[dim]);
    rewriter.modifyOpInPlace(op, [&] {
      op.getInputMutable().assign(inner.getInput());
      op.setDims(dims);
    });
    return success();
  }
};

/// Reduction of repeated elements: the sum of n equal elements is n times the element; their max and min are the
/// element.
struct ReduceOfBroadcast : OpRewritePattern<ir::ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::ReduceOp op, PatternRewriter &rewriter) const override {
    auto broadcast = op.getInput().getDefiningOp<ir::BroadcastOp>();
    if (!broadcast || !isFloat(op.getResult()))
      return failure();
    Dims shape = shapeOf(op.getInput()), from = broadcast.getDims();
    double repeats = 1;
    bool any = false;
    for (int64_t dim : op.getDims())
      if (!llvm::is_contained(from, dim))
        any = true, repeats *= shape[dim];
    if (!any)
      return failure();
    llvm::SmallVector<int64_t> reduced, kept;
    auto remaining = dimsExcept(shape.size(), op.getDims());
    for (auto [i, dim] : llvm::enumerate(from)) {
      auto place = llvm::find(remaining, dim);
      if (place == remaining.end())
        reduced.push_back(i);
      else
        kept.push_back(place - remaining.begin());
    }
    GraphBuilder e = builderAt(op, rewriter);
    Value value = e.reduce(op.getKind(), broadcast.getInput(), reduced);
    if (op.getKind() == ir::ReduceKind::Sum)
      value = e.scale(value, repeats);
    rewriter.replaceOp(op, e.broadcast(value, shapeOf(op.getResult()), kept));
    return success();
  }
};

/// Folds a reduction of a splat.
struct ReduceOfSplat : OpRewritePattern<ir::ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::ReduceOp op, PatternRewriter &rewriter) const override {
    auto value = ir::splatOf(op.getInput());
    if (!value || !isFloat(op.getResult()))
      return failure();
    double repeats = 1;
    for (int64_t dim : op.getDims())
      repeats *= shapeOf(op.getInput())[dim];
    double result = op.getKind() == ir::ReduceKind::Sum ? *value * repeats : *value;
    rewriter.replaceOp(op, builderAt(op, rewriter).constantLike(op.getResult(), result));
    return success();
  }
};

struct SelectOfEqual : OpRewritePattern<ir::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::SelectOp op, PatternRewriter &rewriter) const override {
    if (op.getOnTrue() != op.getOnFalse())
      return failure();
    rewriter.replaceOp(op, op.getOnTrue());
    return success();
  }
};

struct NegOfNeg : OpRewritePattern<ir::NegOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::NegOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<ir::NegOp>();
    if (!inner)
      return failure();
    rewriter.replaceOp(op, inner.getInput());
    return success();
  }
};

/// x + -y = x - y, -x + y = y - x
struct AddOfNeg : OpRewritePattern<ir::AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::AddOp op, PatternRewriter &rewriter) const override {
    Value kept = op.getLhs();
    auto neg = op.getRhs().getDefiningOp<ir::NegOp>();
    if (!neg) {
      kept = op.getRhs();
      neg = op.getLhs().getDefiningOp<ir::NegOp>();
    }
    if (!neg)
      return failure();
    rewriter.replaceOp(op, builderAt(op, rewriter).sub(kept, neg.getInput()));
    return success();
  }
};

/// x - -y = x + y
struct SubOfNeg : OpRewritePattern<ir::SubOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ir::SubOp op, PatternRewriter &rewriter) const override {
    auto neg = op.getRhs().getDefiningOp<ir::NegOp>();
    if (!neg)
      return failure();
    rewriter.replaceOp(op, builderAt(op, rewriter).add(op.getLhs(), neg.getInput()));
    return success();
  }
};

/// Replaces a transpose of the last two dimensions by the product's transpose flag.
struct MatmulOfTranspose : OpRewritePattern<ir::MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  static Value untransposed(Value value) {
    auto transpose = value.getDefiningOp<ir::TransposeOp>();
    if (!transpose)
      return {};
    llvm::SmallVector<int64_t> swapped = dimsExcept(rankOf(value));
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    return transpose.getPermutation() == Dims(swapped) ? transpose.getInput() : Value();
  }

  LogicalResult matchAndRewrite(ir::MatmulOp op, PatternRewriter &rewriter) const override {
    bool equalRanks = rankOf(op.getA()) == rankOf(op.getB());
    Value a = equalRanks ? untransposed(op.getA()) : Value(), b = untransposed(op.getB());
    if (!a && !b)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (a) {
        op.getAMutable().assign(a);
        op.setTransA(!op.getTransA());
      }
      if (b) {
        op.getBMutable().assign(b);
        op.setTransB(!op.getTransB());
      }
    });
    return success();
  }
};

/// A slice within one operand of a concatenation becomes a slice of that operand, so that the other operands need not
/// be computed for it.
struct SliceOfConcat : OpRewritePattern<ir::SliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(ir::SliceOp op, PatternRewriter &rewriter) const override {
    auto concat = op.getInput().getDefiningOp<ir::ConcatOp>();
    if (!concat)
      return failure();
    const int64_t dim = concat.getDim(), begin = op.getStarts()[dim], end = begin + op.getSizes()[dim];
    int64_t first = 0; // index of the operand's first element
    for (Value operand : concat.getInputs()) {
      const int64_t next = first + ir::shapeOf(operand)[dim];
      if (begin >= first && end <= next) {
        llvm::SmallVector<int64_t> starts(op.getStarts());
        starts[dim] = begin - first;
        rewriter.modifyOpInPlace(op, [&] {
          op.getInputMutable().assign(operand);
          op.setStarts(starts);
        });
        return success();
      }
      first = next;
    }
    return failure();
  }
};

} // namespace

void addSimplifyPatterns(RewritePatternSet &patterns) {
  patterns.add<BroadcastOfBroadcast, ReduceOfBroadcast, ReduceOfSplat, SelectOfEqual, NegOfNeg, AddOfNeg, SubOfNeg,
               MatmulOfTranspose, SliceOfConcat>(patterns.getContext());
}

} // namespace cleave::passes
