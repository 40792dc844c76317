// Follows one dimension through whatever moves it along by its sharding rule, and through reshapes.
#include "partitioner/sharding/Heads.h"

#include "ir/dist/Dist.h"
#include "ir/graph/Graph.h"
#include "partitioner/sharding/Rules.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

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
  if (!rule || rule->factors[rule->operands[use.getOperandNumber()][dim]] != FactorKind::Parallel)
    return -1;
  const std::vector<int> &results = rule->results[0];
  auto found = llvm::find(results, rule->operands[use.getOperandNumber()][dim]);
  return found == results.end() ? -1 : found - results.begin();
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

} // namespace

DimSharding splitByHeads(Value value, int64_t dim, int64_t size, const std::string &axis, int64_t parts) {
  DimSharding whole{{{size, {axis}}}};
  for (int depth = 0; depth < 4; ++depth) {
    Value next;
    for (Operation *user : value.getUsers()) {
      if (auto reshape = dyn_cast<ir::ReshapeOp>(user)) {
        auto [first, last] = reshapedTo(reshape, dim);
        ArrayRef<int64_t> out = shapeOf(reshape.getResult());
        int64_t outer = 1;
        for (int64_t d = first; d < last; ++d) {
          if (out[d] >= parts && last - first > 1 && reachesBatch(reshape.getResult(), d))
            return {{{outer, {}}, {out[d], {axis}}, {size / outer / out[d], {}}}};
          outer *= out[d];
        }
      } else if (user->hasTrait<OpTrait::Elementwise>() && !next) {
        next = user->getResult(0);
      }
    }
    if (!next)
      break;
    value = next;
  }
  return whole;
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
    const std::vector<int> &dims = rule->operands[use.getOperandNumber()], &results = rule->results[0];
    for (size_t d = 0; d < dims.size(); ++d) {
      auto out = llvm::find(results, dims[d]);
      if (rule->factors[dims[d]] != FactorKind::Parallel || out == results.end())
        continue;
      DimSharding split = splitByHeads(user->getResult(0), out - results.begin(), shapeOf(parameter)[d], "heads", 1);
      if (split.factors.size() == 1)
        continue;
      HeadsPlace place{d, 0, {}};
      for (const Factor &factor : split.factors) {
        if (!factor.axes.empty())
          place.factor = place.sizes.size();
        place.sizes.push_back(factor.size);
      }
      return place;
    }
  }
  return std::nullopt;
}

} // namespace cleave::partitioner
