// Fusion in five steps:
//
//  1. half-type sums that are only widened become f32 sums (WidenSums.cpp); variances are summed in the same pass as
//     their means (Moments.cpp); very large reductions to few results are split in two (SplitReductions.cpp);
//  2. constants, iotas, broadcasts and widening casts are cloned for each of their users, where they cost nothing;
//  3. groups merge, producers with consumers and users of the same tensor with each other, as long as the kernel
//     planner accepts the result and the cost model finds it cheaper;
//  4. a result that only other fusions read is recomputed in them if that is cheaper than memory traffic;
//  5. reshapes at a group's border stay outside (they are free there), and so do slices if kernels differ only in them
//     (SharedSlices.cpp); the groups become `cleave.fusion` ops.
#include "passes/fuse/Fuse.h"
#include "ir/graph/Graph.h"
#include "passes/codegen/nest/FromFusion.h"
#include "passes/fuse/Groups.h"
#include "passes/fuse/KernelCosts.h"
#include "passes/fuse/Rewrites.h"
#include "passes/rewrite/ThrowingPass.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <limits>
#include <set>

namespace cleave::passes {

#define GEN_PASS_DEF_FUSEPASS
#include "passes/Passes.h.inc"

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
constexpr double launch = 2; // microseconds, as in the cost model
constexpr size_t largestGroup = 160;

class Fuser {
public:
  Fuser(mlir::Block &block, FuseOptions options)
      : groups(block), width(options.gpu ? 1 : 16), costs(width, options.costs) {}
  void run() {
    absorbFree();
    for (int round = 0; round < 4; ++round) {
      bool changed = mergeProducers();
      changed |= mergeSiblings();
      changed |= recompute();
      if (!changed)
        break;
    }
  }
  Groups groups;
  const int width; // vector lanes assumed by the cost model

private:
  double costOf(const std::vector<mlir::Operation *> &ops) {
    if (ops.size() > largestGroup)
      return impossible;
    return costs.of(groups, ops);
  }
  double costOf(int id) {
    if (groups[id].cost < 0)
      groups[id].cost = costOf(groups[id].ops);
    return groups[id].cost;
  }

  double costTogether(int a, int b) {
    if (groups[a].reduced != groups[b].reduced && std::min(groups[a].reduced, groups[b].reduced) != 1)
      return impossible; // the planner would find it too; sums of many gradients ask often
    std::vector<mlir::Operation *> ops = groups[a].ops;
    ops.insert(ops.end(), groups[b].ops.begin(), groups[b].ops.end());
    return costOf(ops);
  }

  bool merge(int a, int b, double together) {
    if (!groups.merge(a, b))
      return false;
    groups[b].cost = together;
    return true;
  }

  /// Group a precedes b. Merges them if that saves more than `handicap` microseconds.
  bool tryMerge(int a, int b, double handicap) {
    auto key = std::pair(std::pair(a, groups[a].version), std::pair(b, groups[b].version));
    if (!tried.insert(key).second || !groups.mayMerge(a, b))
      return false;
    const double apart = costOf(a) + costOf(b), together = costTogether(a, b);
    return together + handicap < apart && merge(a, b, together);
  }

  /// Moves free ops with one user into the user's group.
  void absorbFree() {
    std::vector<int> ids = groups.order();
    for (size_t i = ids.size(); i-- > 0;) {
      int id = ids[i];
      mlir::Operation *op = groups[id].ops.front();
      if (!isFree(op) || !op->hasOneUse())
        continue;
      int user = groups.groupOf(*op->user_begin());
      if (user < 0 || !groups[user].fusible)
        continue;
      if (const double together = costTogether(id, user); together < impossible)
        merge(id, user, together);
    }
  }

  bool mergeProducers() {
    bool changed = false;
    for (int raw : groups.order()) {
      if (groups.find(raw) != raw || !groups[raw].fusible)
        continue;
      for (bool again = true; again;) { // merged groups have new producers
        again = false;
        for (mlir::Value input : groups.inputs(groups[raw].ops)) {
          int producer = groups.groupOf(input.getDefiningOp());
          if (producer < 0 || !groups[producer].fusible || !tryMerge(producer, raw, 0))
            continue;
          changed = again = true;
          break;
        }
      }
    }
    return changed;
  }

  /// Merges users of the same tensor, nearest first. Saving a launch alone is not a reason (every kernel would become
  /// different).
  bool mergeSiblings() {
    bool changed = false;
    llvm::SetVector<mlir::Value> values;
    for (int id : groups.order())
      if (groups[id].fusible)
        for (mlir::Value input : groups.inputs(groups[id].ops))
          if (mlir::cast<mlir::RankedTensorType>(input.getType()).getNumElements() > 256)
            values.insert(input);
    for (mlir::Value value : values) {
      llvm::SetVector<int> users;
      for (mlir::Operation *op : value.getUsers())
        if (int id = groups.groupOf(op); id >= 0 && groups[id].fusible)
          users.insert(id);
      std::vector<int> sorted(users.begin(), users.end());
      if (sorted.size() > 16)
        continue;
      auto before = [&](int a, int b) { return groups.positionOf(a) < groups.positionOf(b); };
      std::sort(sorted.begin(), sorted.end(), before);
      for (size_t i = 0; i < sorted.size(); ++i)
        for (size_t j = i + 1; j < sorted.size(); ++j) {
          int a = groups.find(sorted[i]), b = groups.find(sorted[j]);
          if (a != b)
            changed |= before(a, b) ? tryMerge(a, b, launch) : tryMerge(b, a, launch);
        }
    }
    return changed;
  }

  /// The ops of a group that `value` needs, in order; empty if they include a reduction or are too many.
  std::vector<mlir::Operation *> slice(int id, mlir::Value value) {
    std::set<mlir::Operation *> needed{value.getDefiningOp()};
    std::vector<mlir::Operation *> ops;
    const auto &all = groups[id].ops;
    for (size_t i = all.size(); i-- > 0;) {
      if (!needed.count(all[i]))
        continue;
      if (mlir::isa<ir::ReduceOp>(all[i]) || ops.size() > 24)
        return {};
      ops.insert(ops.begin(), all[i]);
      for (mlir::Value operand : all[i]->getOperands())
        if (operand.getDefiningOp() && groups.groupOf(operand.getDefiningOp()) == id)
          needed.insert(operand.getDefiningOp());
    }
    return ops;
  }

  static std::vector<mlir::Operation *> cloneInto(const std::vector<mlir::Operation *> &ops,
                                                  const std::vector<mlir::Operation *> &users) {
    mlir::IRMapping map;
    mlir::OpBuilder b(ops.front()->getContext());
    std::vector<mlir::Operation *> result;
    b.setInsertionPointAfter(ops.back());
    for (mlir::Operation *op : ops)
      result.push_back(b.clone(*op, map));
    for (mlir::Operation *user : users)
      for (mlir::OpOperand &operand : user->getOpOperands())
        if (operand.get() == ops.back()->getResult(0))
          operand.set(result.back()->getResult(0));
    result.insert(result.end(), users.begin(), users.end());
    return result;
  }

  /// Whether recomputing `value` with the ops `needed` in a reader keeps at most one more large tensor alive or, on a
  /// GPU, no more bytes than `value`.
  bool keepsMemorySmall(mlir::Value value, const std::vector<mlir::Operation *> &needed, int reader) {
    auto size = [](mlir::Value v) { return mlir::cast<mlir::RankedTensorType>(v.getType()).getNumElements(); };
    auto bits = [&](mlir::Value v) { return size(v) * mlir::getElementTypeOrSelf(v).getIntOrFloatBitWidth(); };
    std::vector<mlir::Value> has = groups.inputs(groups[reader].ops);
    int more = 0;
    int64_t moreBits = 0;
    for (mlir::Value input : groups.inputs(needed))
      if (size(input) * 2 > size(value) && std::find(has.begin(), has.end(), input) == has.end()) {
        ++more;
        moreBits += bits(input);
      }
    return more <= 1 || (width == 1 && moreBits <= bits(value));
  }

  /// Tries to recompute `value` of group `id` in every group that reads it.
  bool recomputeValue(int id, mlir::Value value) {
    llvm::SetVector<int> readers;
    for (mlir::Operation *user : value.getUsers()) {
      int reader = groups.groupOf(user);
      if (reader == id)
        continue;
      if (reader < 0 || !groups[reader].fusible)
        return false;
      readers.insert(reader);
    }
    std::vector<mlir::Operation *> needed = slice(id, value);
    if (needed.empty() || readers.empty() || readers.size() > 6)
      return false;
    if (llvm::any_of(readers, [&](int reader) { return !keepsMemorySmall(value, needed, reader); }))
      return false;
    double before = costOf(id);
    std::vector<std::vector<mlir::Operation *>> original, changed;
    for (int reader : readers) {
      before += costOf(reader);
      original.push_back(groups[reader].ops);
      changed.push_back(cloneInto(needed, original.back()));
    }
    std::vector<mlir::Operation *> rest = groups[id].ops; // ops that become dead cost nothing
    double after = costOf(rest);
    for (const auto &ops : changed)
      after += costOf(ops);
    if (after + 0.05 < before) {
      std::vector<int> producers{id}; // groups with changed users
      for (mlir::Value input : groups.inputs(rest))
        if (int producer = groups.groupOf(input.getDefiningOp()); producer >= 0)
          producers.push_back(producer);
      for (size_t i = 0; i < readers.size(); ++i)
        groups.setOps(readers[i], changed[i]);
      std::vector<mlir::Operation *> alive = withoutDead(rest);
      for (size_t i = rest.size(); i-- > 0;)
        if (std::find(alive.begin(), alive.end(), rest[i]) == alive.end())
          erase(rest[i]);
      groups.setOps(id, alive);
      if (alive.empty())
        groups.erase(id);
      groups.rebuildEdges(producers);
      return true;
    }
    for (size_t i = 0; i < readers.size(); ++i) { // undo
      for (mlir::Operation *user : original[i])
        user->replaceUsesOfWith(changed[i][needed.size() - 1]->getResult(0), value);
      for (size_t k = needed.size(); k-- > 0;)
        erase(changed[i][k]);
    }
    return false;
  }

  void erase(mlir::Operation *op) {
    costs.forget(op);
    op->erase();
  }

  static std::vector<mlir::Operation *> withoutDead(const std::vector<mlir::Operation *> &ops) {
    std::set<mlir::Operation *> dead;
    for (size_t i = ops.size(); i-- > 0;)
      if (llvm::all_of(ops[i]->getUsers(), [&](mlir::Operation *user) { return dead.count(user) != 0; }))
        dead.insert(ops[i]);
    std::vector<mlir::Operation *> alive;
    for (mlir::Operation *op : ops)
      if (!dead.count(op))
        alive.push_back(op);
    return alive;
  }

  bool recompute() {
    bool changed = false;
    for (int id : groups.order()) {
      if (groups.find(id) != id || !groups[id].fusible)
        continue;
      for (bool again = true; again && !groups[id].ops.empty();) {
        again = false;
        for (mlir::Value output : groups.outputs(groups[id].ops)) {
          if (!triedValues.insert({std::pair(id, groups[id].version), output.getAsOpaquePointer()}).second)
            continue;
          if (recomputeValue(id, output)) {
            changed = again = true;
            break;
          }
        }
      }
    }
    return changed;
  }

  KernelCosts costs;
  llvm::DenseSet<std::pair<std::pair<int, int>, std::pair<int, int>>> tried;
  llvm::DenseSet<std::pair<std::pair<int, int>, void *>> triedValues;
};

} // namespace

bool isFree(mlir::Operation *op) {
  if (mlir::isa<ir::CastOp>(op)) { // exact, and storing the narrower value before the cast takes fewer bytes
    mlir::Type from = mlir::getElementTypeOrSelf(op->getOperand(0)), to = mlir::getElementTypeOrSelf(op->getResult(0));
    return mlir::isa<mlir::FloatType>(from) && mlir::isa<mlir::FloatType>(to) &&
           from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
  }
  return mlir::isa<ir::ConstantOp, ir::IotaOp, ir::BroadcastOp>(op);
}

/// Clones free ops so that each fusible user has its own copy.
void cloneFreeOps(mlir::Block &block) {
  for (mlir::Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (kernel::isFusible(&op) && op.use_empty())
      op.erase();
  for (mlir::Operation &op : llvm::make_early_inc_range(llvm::reverse(block.without_terminator()))) {
    if (!isFree(&op) || !kernel::isFusible(&op))
      continue;
    for (mlir::OpOperand &use : llvm::make_early_inc_range(op.getUses())) {
      if (op.hasOneUse() || !kernel::isFusible(use.getOwner()))
        continue;
      mlir::OpBuilder b(&op); // before the original, so that this loop visits the clone, which has one use
      use.set(b.clone(op)->getResult(0));
    }
  }
}

void fuse(mlir::func::FuncOp function, FuseOptions options) {
  mlir::Block &block = function.getBody().front();
  widenSums(block);
  joinMoments(block, options.gpu);
  splitReductions(block, options.gpu);
  cloneFreeOps(block);
  Fuser fuser(block, options);
  fuser.run();
  materialize(block, fuser.groups, fuser.width);
}

namespace {

struct FusePass : ThrowingPass<impl::FusePassBase<FusePass>> {
  using ThrowingPass::ThrowingPass;
  void work() override {
    if (getOperation().getBody().hasOneBlock())
      fuse(getOperation(), {gpu});
  }
};

} // namespace

} // namespace cleave::passes
