// Moves all-gathers within their block.
#include "passes/overlap/Overlap.h"

#include "ir/dist/Dist.h"
#include "passes/rewrite/ThrowingPass.h"
#include "runtime/base/Mesh.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <vector>

using namespace mlir;

namespace cleave::passes {

#define GEN_PASS_DEF_GATHEREARLYPASS
#include "passes/Passes.h.inc"

namespace {

/// The axes of a collective; null if `op` is none.
ArrayAttr axesOf(Operation &op) {
  return llvm::TypeSwitch<Operation *, ArrayAttr>(&op)
      .Case<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp>(
          [](auto collective) { return collective.getAxes(); })
      .Default([](Operation *) { return ArrayAttr(); });
}

bool isAmongReplicas(ArrayAttr axes) {
  return !axes.empty() && llvm::all_of(axes.getAsValueRange<StringAttr>(),
                                       [](StringRef axis) { return roleOf(axis) == AxisRole::Data; });
}

Operation *later(Operation *a, Operation *b) { return !a ? b : !b || b->isBeforeInBlock(a) ? a : b; }

/// The last of the ops that compute the operands; null if all operands are arguments of the block.
Operation *lastMaker(Operation *op) {
  Operation *last = nullptr;
  for (Value operand : op->getOperands())
    last = later(last, operand.getDefiningOp());
  return last;
}

Operation *firstReader(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers())
    if (Operation *here = op->getBlock()->findAncestorOpInBlock(*user); !first || here->isBeforeInBlock(first))
      first = here;
  return first;
}

/// The op in front of which a gather can run concurrently with other ops, given the collective before it; null if there
/// is none.
Operation *placeBefore(Operation *previous) {
  return isa<dist::AllGatherOp>(previous) ? firstReader(previous) : lastMaker(previous);
}

/// The moves made in a function among the collectives of a stream.
struct Moves {
  std::vector<std::pair<Operation *, Operation *>> moved; // a gather and the op that followed it, in order
  std::vector<size_t> order; // of all collectives, also those of the other stream, by their former places

  void undo() const {
    for (const auto &[op, before] : llvm::reverse(moved))
      op->moveBefore(before);
  }
};

template <typename InStream> Moves moveGathers(func::FuncOp function, InStream &&inStream) {
  std::vector<Operation *> collectives;
  llvm::DenseMap<Operation *, size_t> places;
  for (Operation &op : function.getBody().front())
    if (ArrayAttr axes = axesOf(op)) {
      places.try_emplace(&op, places.size());
      if (inStream(axes))
        collectives.push_back(&op);
    }
  Moves moves;
  for (size_t i = 1; i < collectives.size(); ++i) {
    Operation *gather = collectives[i], *place = placeBefore(collectives[i - 1]);
    if (!isa<dist::AllGatherOp>(gather) || !place)
      continue;
    Operation *maker = lastMaker(gather);
    if (maker && !maker->isBeforeInBlock(place))
      place = maker->getNextNode();
    if (!place->isBeforeInBlock(gather))
      continue;
    moves.moved.emplace_back(gather, gather->getNextNode());
    gather->moveBefore(place);
    for (size_t at = i; at > 0 && gather->isBeforeInBlock(collectives[at - 1]); --at)
      std::swap(collectives[at], collectives[at - 1]);
  }
  for (Operation &op : function.getBody().front())
    if (auto found = places.find(&op); found != places.end())
      moves.order.push_back(found->second);
  return moves;
}

struct GatherEarlyPass : ThrowingPass<impl::GatherEarlyPassBase<GatherEarlyPass>> {
  using ThrowingPass::ThrowingPass;
  void work() override { gatherEarly(getOperation()); }
};

} // namespace

void gatherEarly(llvm::ArrayRef<func::FuncOp> alike, CollectiveStreams streams) {
  const auto moveAll = [&](auto &&inStream) {
    std::vector<Moves> all;
    for (func::FuncOp function : alike)
      all.push_back(moveGathers(function, inStream));
    if (llvm::any_of(all, [&](const Moves &moves) { return moves.order != all.front().order; }))
      for (const Moves &moves : all)
        moves.undo();
  };
  if (streams != CollectiveStreams::Apart)
    return moveAll([](ArrayAttr) { return true; });
  moveAll([](ArrayAttr axes) { return isAmongReplicas(axes); });
  moveAll([](ArrayAttr axes) { return !isAmongReplicas(axes); });
}

} // namespace cleave::passes
