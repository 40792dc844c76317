// Follows one dimension through whatever moves it along by its sharding rule, through reshapes, and through slices that
// take a run of it.
#include "partitioner/sharding/Heads.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/sharding/Rules.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

#include <numeric>

using namespace mlir;

namespace cleave::partitioner {
namespace {

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

// The result dimensions that input dimension `dim` of a reshape becomes: [first, last); empty where it merges.
std::pair<int64_t, int64_t> reshapedTo(ir::ReshapeOp op, int64_t dim) {
  ArrayRef<int64_t> in = shapeOf(op.getInput()), out = shapeOf(op.getResult());
  int64_t before = 1, seen = 1;
  for (int64_t d = 0; d < dim; ++d)
    before *= in[d];
  size_t first = 0;
  while (first < out.size() && seen < before)
    seen *= out[first++];
  if (seen != before)
    return {0, 0};
  size_t last = first;
  while (last < out.size() && seen < before * in[dim])
    seen *= out[last++];
  return seen == before * in[dim] ? std::pair<int64_t, int64_t>(first, last) : std::pair<int64_t, int64_t>(0, 0);
}

bool isBatchOfAttention(Operation *user, OpOperand &use, int64_t dim) {
  if (auto matmul = dyn_cast<ir::MatmulOp>(user))
    return shapeOf(matmul.getB()).size() > 2 && dim < (int64_t)shapeOf(use.get()).size() - 2;
  return isa<ir::AttentionOp>(user) && dim == 1;
}

// The dimension of the reshape's result of which `dim` is all or the major part, or -1.
int64_t majorIn(ir::ReshapeOp op, int64_t dim) {
  ArrayRef<int64_t> in = shapeOf(op.getInput()), out = shapeOf(op.getResult());
  int64_t before = 1, seen = 1;
  for (int64_t d = 0; d < dim; ++d)
    before *= in[d];
  size_t first = 0;
  while (first < out.size() && seen < before)
    seen *= out[first++];
  while (first < out.size() && out[first] == 1 && in[dim] != 1)
    ++first;
  return seen == before && first < out.size() && out[first] % in[dim] == 0 ? first : -1;
}

// The dimension of the user's result that `dim` of the operand becomes, or -1.
int64_t follow(OpOperand &use, int64_t dim) {
  Operation *user = use.getOwner();
  if (isa<func::ReturnOp>(user) || user->getNumResults() != 1)
    return -1;
  if (auto reshape = dyn_cast<ir::ReshapeOp>(user))
    return majorIn(reshape, dim);
  if (isa<dist::ReshardOp>(user)) // put there by the walk that asks
    return dim;
  auto rule = shardingRule(user);
  if (!rule)
    return -1;
  const RuleDim at = rule->operands[use.getOperandNumber()][dim];
  const size_t found = dimOf(rule->results[0], at.factor);
  const bool moves = rule->factors[at.factor] == FactorKind::Parallel && found < rule->results[0].size();
  return moves && at.runs == 1 && rule->results[0][found].runs == 1 ? static_cast<int64_t>(found) : -1;
}

// The value's dimension becomes the heads of an attention. `seen`: values looked at.
bool reachesBatch(Value value, int64_t dim, llvm::DenseSet<std::pair<Value, int64_t>> &seen) {
  if (!seen.insert({value, dim}).second || seen.size() > 200)
    return false;
  for (OpOperand &use : value.getUses()) {
    if (isBatchOfAttention(use.getOwner(), use, dim))
      return true;
    int64_t next = follow(use, dim);
    if (next >= 0 && reachesBatch(use.getOwner()->getResult(0), next, seen))
      return true;
  }
  return false;
}

bool reachesBatch(Value value, int64_t dim) {
  llvm::DenseSet<std::pair<Value, int64_t>> seen;
  return reachesBatch(value, dim, seen);
}

// A dimension as outer x size x inner, of which `size` may be split.
struct Cut {
  int64_t outer, size, inner;
  bool heads = true; // false: all of it, as its slices have the heads in different places
  bool operator==(const Cut &) const = default;
};

// What of the sliced dimension becomes heads, where `cut` of the slice's does: in every run, or not at all.
std::optional<Cut> beforeSlice(ir::SliceOp slice, int64_t dim, const Cut &cut) {
  const OpRule rule = *shardingRule(slice);
  const RuleDim before = rule.operands[0][dim], after = rule.results[0][dim];
  if (!cut.heads || cut.outer % after.runs != 0)
    return std::nullopt;
  return Cut{cut.outer / after.runs * before.runs, cut.size, cut.inner};
}

// The factor, of at least `parts`, of the value's dimension that becomes the heads of an attention. Where slices would
// have it differently (fewer heads for keys than for queries), all of it: one gather serves all slices.
std::optional<Cut> headsIn(Value value, int64_t dim, int64_t parts, int depth = 4) {
  Value next;
  std::optional<Cut> sliced;
  for (Operation *user : value.getUsers()) {
    if (auto reshape = dyn_cast<ir::ReshapeOp>(user)) {
      auto [first, last] = reshapedTo(reshape, dim);
      ArrayRef<int64_t> out = shapeOf(reshape.getResult());
      int64_t outer = 1;
      for (int64_t d = first; d < last; ++d) {
        if (out[d] >= parts && last - first > 1 && reachesBatch(reshape.getResult(), d))
          return Cut{outer, out[d], shapeOf(value)[dim] / outer / out[d]};
        outer *= out[d];
      }
    } else if (auto slice = dyn_cast<ir::SliceOp>(user)) {
      auto cut = depth ? headsIn(slice.getResult(), dim, parts, depth - 1) : std::nullopt;
      if (!cut)
        continue;
      const Cut whole{1, shapeOf(value)[dim], 1, false}, before = beforeSlice(slice, dim, *cut).value_or(whole);
      sliced = !sliced || *sliced == before ? before : whole;
    } else if (user->hasTrait<OpTrait::Elementwise>() && !next) {
      next = user->getResult(0);
    }
  }
  if (sliced)
    return sliced;
  return next && depth ? headsIn(next, dim, parts, depth - 1) : std::nullopt;
}

// The size at whose multiples slices cut the value's dimension, and at which concatenations continue it; the
// dimension's where none does. (Not what reshapes make of it: so split, gates of recurrent layers cost more messages.)
int64_t runIn(Value value, int64_t dim, int depth = 4) {
  const int64_t size = shapeOf(value)[dim];
  int64_t run = size;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<ir::SliceOp, ir::ConcatOp>(user))
      run = std::gcd(run, size / shardingRule(user)->operands[use.getOperandNumber()][dim].runs);
    else if (user->hasTrait<OpTrait::Elementwise>() && depth)
      run = std::gcd(run, runIn(user->getResult(0), dim, depth - 1));
  }
  return run;
}

} // namespace

DimSharding defaultSplit(Value value, int64_t dim, const std::string &axis, int64_t parts) {
  const int64_t size = shapeOf(value)[dim];
  const auto fused = [&] {
    const int64_t run = runIn(value, dim);
    return run < parts ? Cut{1, size, 1} : Cut{size / run, run, 1};
  };
  const auto heads = headsIn(value, dim, parts);
  const Cut cut = heads ? *heads : fused();
  return {{{cut.outer, {}}, {cut.size, {axis}}, {cut.inner, {}}}};
}

std::optional<HeadsPlace> headsOf(Value parameter) {
  for (OpOperand &use : parameter.getUses()) {
    Operation *user = use.getOwner();
    if (auto cast = dyn_cast<ir::CastOp>(user)) {
      if (auto found = headsOf(cast.getResult()))
        return found;
      continue;
    }
    auto rule = user->getNumResults() == 1 ? shardingRule(user) : std::nullopt;
    if (!rule)
      continue;
    const std::vector<RuleDim> &dims = rule->operands[use.getOperandNumber()], &results = rule->results[0];
    for (size_t d = 0; d < dims.size(); ++d) {
      const size_t out = dimOf(results, dims[d].factor);
      if (rule->factors[dims[d].factor] != FactorKind::Parallel || dims[d].runs > 1 || out == results.size())
        continue;
      if (auto cut = headsIn(user->getResult(0), out, 1); cut && cut->heads)
        return HeadsPlace{d, 1, {cut->outer, cut->size, cut->inner}};
    }
  }
  return std::nullopt;
}

} // namespace cleave::partitioner
