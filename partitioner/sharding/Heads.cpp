// Follows one dimension through ops whose sharding rule keeps it, through reshapes, and through slices that take a run
// of it.
#include "partitioner/sharding/Heads.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace cleave::partitioner {
namespace {

class Lookahead {
public:
  explicit Lookahead(const ShardingProblem &problem) : problem(problem) {}

  /// The factor of the tensor's dimension, at least `parts` large, that becomes the heads of an attention. If slices
  /// disagree (fewer heads for keys than for queries), the whole dimension: one gather serves all slices.
  struct Heads {
    DimCut cut;
    bool found = true; // false: the whole dimension, because its slices disagree about the heads
    bool operator==(const Heads &) const = default;
  };
  std::optional<Heads> headsIn(TensorId tensor, size_t dim, int64_t parts, int depth = 4) const;

  /// The length at whose multiples slices cut the tensor's dimension and concatenations join it; the size of the
  /// dimension if none does. (Reshapes are ignored: splits that follow them would cost more messages for the gates of
  /// recurrent layers.)
  int64_t runIn(TensorId tensor, size_t dim, int depth = 4) const;

private:
  const ShardingProblem &problem;
  using Seen = std::set<std::pair<TensorId, size_t>>;

  const std::vector<int64_t> &shapeOf(TensorId tensor) const { return problem.tensors[tensor].shape; }
  const std::vector<Use> &usesOf(TensorId tensor) const { return problem.tensors[tensor].uses; }
  const RuleDim &ruleDim(const Use &use, size_t dim) const { return problem.ruleOf(use.op).operands[use.operand][dim]; }
  TensorId resultOf(const Use &use) const { return problem.ops[use.op].results[0]; }

  bool isBatchOfProduct(const Use &use, size_t dim) const;
  int64_t follow(const Use &use, size_t dim) const;
  bool reachesBatch(TensorId tensor, size_t dim, Seen &seen) const;
  Heads beforeSlice(const Use &slice, size_t dim, const Heads &after) const;
};

// The dimensions of `to` that dimension `dim` of `from` becomes in a reshape: [first, last); empty if it is merged.
std::pair<size_t, size_t> reshapedTo(const std::vector<int64_t> &from, const std::vector<int64_t> &to, size_t dim) {
  int64_t before = 1, seen = 1;
  for (size_t d = 0; d < dim; ++d)
    before *= from[d];
  size_t first = 0;
  while (first < to.size() && seen < before)
    seen *= to[first++];
  if (seen != before)
    return {0, 0};
  size_t last = first;
  while (last < to.size() && seen < before * from[dim])
    seen *= to[last++];
  return seen == before * from[dim] ? std::pair(first, last) : std::pair(size_t{0}, size_t{0});
}

// The dimension of `to` of which dimension `dim` of `from` is all or the major part, or -1.
int64_t majorIn(const std::vector<int64_t> &from, const std::vector<int64_t> &to, size_t dim) {
  int64_t before = 1, seen = 1;
  for (size_t d = 0; d < dim; ++d)
    before *= from[d];
  size_t first = 0;
  while (first < to.size() && seen < before)
    seen *= to[first++];
  while (first < to.size() && to[first] == 1 && from[dim] != 1)
    ++first;
  return seen == before && first < to.size() && to[first] % from[dim] == 0 ? static_cast<int64_t>(first) : -1;
}

bool Lookahead::isBatchOfProduct(const Use &use, size_t dim) const {
  const ProblemOp &op = problem.ops[use.op];
  if (op.rule < 0)
    return false;
  const std::vector<int> &batches = problem.rules[op.rule].productBatches;
  return !batches.empty() && std::find(batches.begin(), batches.end(), ruleDim(use, dim).loop) != batches.end();
}

// The dimension of the op's result that `dim` of the operand becomes, or -1.
int64_t Lookahead::follow(const Use &use, size_t dim) const {
  const ProblemOp &op = problem.ops[use.op];
  if (op.results.size() != 1)
    return -1;
  if (op.kind == OpKind::Reshape)
    return majorIn(shapeOf(op.operands[0]), shapeOf(op.results[0]), dim);
  if (op.rule < 0)
    return -1;
  const OpRule &rule = problem.rules[op.rule];
  const RuleDim &at = ruleDim(use, dim);
  const size_t found = dimOf(rule.results[0], at.loop);
  const bool moves = rule.loops[at.loop] == LoopKind::Parallel && found < rule.results[0].size();
  return moves && at.runs == 1 && rule.results[0][found].runs == 1 ? static_cast<int64_t>(found) : -1;
}

// Whether the tensor's dimension becomes the heads of an attention. `seen`: tensors and dimensions visited so far.
bool Lookahead::reachesBatch(TensorId tensor, size_t dim, Seen &seen) const {
  if (!seen.insert({tensor, dim}).second || seen.size() > 200)
    return false;
  for (const Use &use : usesOf(tensor)) {
    if (isBatchOfProduct(use, dim))
      return true;
    const int64_t next = follow(use, dim);
    if (next >= 0 && reachesBatch(resultOf(use), next, seen))
      return true;
  }
  return false;
}

// The heads before a slice, given the heads `after` it: the same factor in every run, or else the whole dimension.
Lookahead::Heads Lookahead::beforeSlice(const Use &slice, size_t dim, const Heads &after) const {
  const RuleDim &from = ruleDim(slice, dim), &to = problem.ruleOf(slice.op).results[0][dim];
  if (!after.found || after.cut.outer % to.runs != 0)
    return {{1, shapeOf(problem.ops[slice.op].operands[0])[dim], 1}, false};
  return {{after.cut.outer / to.runs * from.runs, after.cut.size, after.cut.inner}};
}

std::optional<Lookahead::Heads> Lookahead::headsIn(TensorId tensor, size_t dim, int64_t parts, int depth) const {
  const int64_t size = shapeOf(tensor)[dim];
  TensorId next = -1;
  std::optional<Heads> sliced;
  for (const Use &use : usesOf(tensor)) {
    const ProblemOp &op = problem.ops[use.op];
    if (op.kind == OpKind::Reshape) {
      const std::vector<int64_t> &out = shapeOf(op.results[0]);
      const auto [first, last] = reshapedTo(shapeOf(tensor), out, dim);
      int64_t outer = 1;
      for (size_t d = first; d < last; ++d) {
        Seen seen;
        if (out[d] >= parts && last - first > 1 && reachesBatch(op.results[0], d, seen))
          return Heads{{outer, out[d], size / outer / out[d]}};
        outer *= out[d];
      }
    } else if (op.kind == OpKind::Slice) {
      const auto after = depth ? headsIn(op.results[0], dim, parts, depth - 1) : std::nullopt;
      if (!after)
        continue;
      const Heads before = beforeSlice(use, dim, *after);
      sliced = !sliced || *sliced == before ? before : Heads{{1, size, 1}, false};
    } else if (isElementwise(op.kind) && next < 0) {
      next = op.results[0];
    }
  }
  if (sliced)
    return sliced;
  return next >= 0 && depth ? headsIn(next, dim, parts, depth - 1) : std::nullopt;
}

int64_t Lookahead::runIn(TensorId tensor, size_t dim, int depth) const {
  const int64_t size = shapeOf(tensor)[dim];
  int64_t run = size;
  for (const Use &use : usesOf(tensor)) {
    const ProblemOp &op = problem.ops[use.op];
    if (op.kind == OpKind::Slice || op.kind == OpKind::Concat)
      run = std::gcd(run, size / ruleDim(use, dim).runs);
    else if (isElementwise(op.kind) && depth)
      run = std::gcd(run, runIn(op.results[0], dim, depth - 1));
  }
  return run;
}

} // namespace

DimSharding DimCut::over(const std::vector<std::string> &axes) const {
  return {{{outer, {}}, {size, axes}, {inner, {}}}};
}

DimCut defaultCut(const ShardingProblem &problem, TensorId tensor, size_t dim, int64_t parts) {
  const Lookahead lookahead(problem);
  if (const auto heads = lookahead.headsIn(tensor, dim, parts))
    return heads->cut;
  const int64_t size = problem.tensors[tensor].shape[dim], run = lookahead.runIn(tensor, dim);
  return run < parts ? DimCut{1, size, 1} : DimCut{size / run, run, 1};
}

std::optional<HeadsPlace> headsOf(const ShardingProblem &problem, TensorId parameter) {
  const Lookahead lookahead(problem);
  for (const Use &use : problem.tensors[parameter].uses) {
    const ProblemOp &op = problem.ops[use.op];
    if (op.kind == OpKind::Cast) {
      if (auto found = headsOf(problem, op.results[0]))
        return found;
      continue;
    }
    if (op.rule < 0 || op.results.size() != 1)
      continue;
    const OpRule &rule = problem.rules[op.rule];
    const std::vector<RuleDim> &dims = rule.operands[use.operand];
    for (size_t d = 0; d < dims.size(); ++d) {
      const size_t out = dimOf(rule.results[0], dims[d].loop);
      if (rule.loops[dims[d].loop] != LoopKind::Parallel || dims[d].runs > 1 || out == rule.results[0].size())
        continue;
      if (auto heads = lookahead.headsIn(op.results[0], out, 1); heads && heads->found)
        return HeadsPlace{d, 1, {heads->cut.outer, heads->cut.size, heads->cut.inner}};
    }
  }
  return std::nullopt;
}

} // namespace cleave::partitioner
