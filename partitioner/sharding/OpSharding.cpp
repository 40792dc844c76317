// Derives shardings from split loops, and lists all choices of split loops.
#include "partitioner/sharding/OpSharding.h"

#include "partitioner/sharding/Heads.h"
#include "partitioner/sharding/Reshape.h"

#include <algorithm>

namespace cleave::partitioner {

bool passesSum(const ShardingProblem &problem, const ProblemOp &op, size_t i) {
  const bool splat = problem.tensors[op.operands[i]].splat;
  switch (problem.rules[op.rule].sums) {
  case SumPassing::None:
    return false;
  case SumPassing::Linear:
    return true;
  case SumPassing::Product:
    return !splat;
  case SumPassing::Quotient:
    return !splat || i == 0;
  }
  return false;
}

std::optional<DimSharding> splitOfRun(const DimSharding &dim, int64_t runs) {
  const Factor &first = dim.factors.front();
  if (runs == 1)
    return dim;
  if (!first.axes.empty() || first.size % runs != 0)
    return std::nullopt;
  DimSharding run = dim;
  run.factors.front().size /= runs;
  return run;
}

DimSharding splitOfRuns(DimSharding run, int64_t runs) {
  if (runs > 1)
    run.factors.insert(run.factors.begin(), Factor{runs, {}});
  return run;
}

namespace {

Sharding shardingFor(const Mesh &mesh, const OpRule &rule, const LoopSplits &splits, const std::vector<RuleDim> &dims,
                     const std::vector<int64_t> &shape) {
  Sharding sharding = Sharding::replicated(shape);
  for (size_t d = 0; d < dims.size(); ++d)
    if (rule.loops[dims[d].loop] != LoopKind::Whole && splits[dims[d].loop].split())
      sharding.dims[d] = splitOfRuns(splits[dims[d].loop], dims[d].runs);
  sharding.normalise(mesh);
  return sharding;
}

// Adds the axes that split reduced loops as partial axes of a result.
void addPartialAxes(Sharding &sharding, const OpRule &rule, const LoopSplits &splits,
                    const std::vector<RuleDim> &dims) {
  for (size_t l = 0; l < rule.loops.size(); ++l) {
    const LoopKind kind = rule.loops[l];
    if (kind == LoopKind::Parallel || kind == LoopKind::Whole || dimOf(dims, l) < dims.size())
      continue;
    for (const Factor &part : splits[l].factors)
      for (const std::string &axis : part.axes) {
        sharding.partialAxes.push_back(axis);
        sharding.partialKind = kind == LoopKind::Max   ? PartialKind::Max
                               : kind == LoopKind::Min ? PartialKind::Min
                                                       : PartialKind::Sum;
      }
  }
  std::sort(sharding.partialAxes.begin(), sharding.partialAxes.end());
}

} // namespace

OpSharding shardOp(const ShardingProblem &problem, const ProblemOp &op, const LoopSplits &splits,
                   const std::vector<std::string> &passed) {
  const OpRule &rule = problem.rules[op.rule];
  OpSharding sharding;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    sharding.operands.push_back(
        shardingFor(problem.mesh, rule, splits, rule.operands[i], problem.tensors[op.operands[i]].shape));
    if (passesSum(problem, op, i))
      sharding.operands.back().partialAxes = passed;
  }
  for (size_t r = 0; r < op.results.size(); ++r) {
    Sharding result = shardingFor(problem.mesh, rule, splits, rule.results[r], problem.tensors[op.results[r]].shape);
    result.partialAxes = passed;
    addPartialAxes(result, rule, splits, rule.results[r]);
    sharding.results.push_back(std::move(result));
  }
  return sharding;
}

namespace {

// Lists the choices of one op: every combination of axes and the places that they may split.
class Choices {
public:
  Choices(const ShardingProblem &problem, const ProblemOp &op) : problem(problem), op(op) {
    for (const MeshAxis &axis : problem.mesh.axes)
      if (axis.size > 1 && axis.role() != AxisRole::Pipeline)
        axes.push_back(axis.name);
  }

  std::vector<OpSharding> list() {
    if (op.kind == OpKind::Return)
      return {};
    if (op.kind == OpKind::Reshape)
      return reshapes();
    if (op.kind == OpKind::Free) {
      for (Sharding &sharding : ofTensor(problem.tensors[op.results[0]].shape, false))
        add({{}, {std::move(sharding)}});
      return std::move(found);
    }
    byRule();
    return std::move(found);
  }

private:
  const ShardingProblem &problem;
  const ProblemOp &op;
  std::vector<std::string> axes;
  std::vector<OpSharding> found;

  void add(OpSharding choice) {
    if (std::find(found.begin(), found.end(), choice) == found.end())
      found.push_back(std::move(choice));
  }

  // Calls `take` with every map from axes to `places` (place -1: the axis is not used).
  template <typename Take> void forAllPlacings(int places, Take take) const {
    std::vector<int> placing(axes.size(), -1);
    for (;;) {
      take(placing);
      size_t a = 0;
      while (a < placing.size() && ++placing[a] == places)
        placing[a++] = -1;
      if (a == placing.size())
        return;
    }
  }

  std::vector<std::string> axesAt(const std::vector<int> &placing, int place) const {
    std::vector<std::string> at;
    for (size_t a = 0; a < axes.size(); ++a)
      if (placing[a] == place)
        at.push_back(axes[a]);
    return at;
  }

  // All ways to split whole dimensions; with `partial` each with every subset of the remaining axes as partial axes.
  std::vector<Sharding> ofTensor(const std::vector<int64_t> &shape, bool partial) const {
    std::vector<Sharding> all;
    const int dims = static_cast<int>(shape.size());
    forAllPlacings(dims + partial, [&](const std::vector<int> &placing) {
      Sharding sharding = Sharding::replicated(shape);
      for (int d = 0; d < dims; ++d) {
        sharding.dims[d].factors[0].axes = axesAt(placing, d);
        if (problem.mesh.size(sharding.dims[d].factors[0].axes) > shape[d])
          return;
      }
      if (partial)
        sharding.partialAxes = axesAt(placing, dims);
      sharding.normalise(problem.mesh);
      all.push_back(std::move(sharding));
    });
    return all;
  }

  std::vector<OpSharding> reshapes() {
    const std::vector<int64_t> &from = problem.tensors[op.operands[0]].shape,
                               &to = problem.tensors[op.results[0]].shape;
    for (const Sharding &operand : ofTensor(from, true))
      if (auto result = reshapeSharding(operand, from, to, problem.mesh))
        add({{operand}, {*result}});
    for (const Sharding &result : ofTensor(to, true))
      if (auto operand = reshapeSharding(result, to, from, problem.mesh))
        add({{*operand}, {result}});
    return std::move(found);
  }

  // The ways to cut the loop: as a whole, and where the lookahead finds heads or slices.
  std::vector<DimCut> cutsOf(const OpRule &rule, int loop, int64_t parts) const {
    std::vector<DimCut> cuts{{1, sizeOf(rule, loop), 1}};
    if (rule.loops[loop] != LoopKind::Parallel || rule.results.empty())
      return cuts;
    const size_t dim = dimOf(rule.results[0], loop);
    if (dim == rule.results[0].size() || rule.results[0][dim].runs > 1)
      return cuts;
    const DimCut cut = defaultCut(problem, op.results[0], dim, parts);
    if (cut != cuts[0])
      cuts.push_back(cut);
    return cuts;
  }

  int64_t sizeOf(const OpRule &rule, int loop) const {
    const auto sizeIn = [&](const std::vector<std::vector<RuleDim>> &side, const std::vector<TensorId> &tensors) {
      for (size_t i = 0; i < side.size(); ++i)
        if (const size_t d = dimOf(side[i], loop); d < side[i].size())
          return problem.tensors[tensors[i]].shape[d] / side[i][d].runs;
      return int64_t{0};
    };
    const int64_t size = sizeIn(rule.operands, op.operands);
    return size ? size : sizeIn(rule.results, op.results);
  }

  // Returns the loops that an axis may split; writes the splits that the user's mark demands to `fixed`.
  std::vector<int> freeLoops(const OpRule &rule, LoopSplits &fixed) const {
    std::vector<int> loops;
    const MarkedDims none, &marked = op.mark < 0 ? none : problem.marks[op.mark];
    for (int l = 0; l < (int)rule.loops.size(); ++l) {
      const size_t dim = rule.results.empty() ? 0 : dimOf(rule.results[0], l);
      if (dim < marked.size() && marked[dim])
        fixed[l] = *marked[dim];
      else if (rule.loops[l] != LoopKind::Whole &&
               (rule.leader < 0 || dimOf(rule.operands[rule.leader], l) < rule.operands[rule.leader].size()))
        loops.push_back(l);
    }
    return loops;
  }

  // Whether the op may pass partial sums on. A product of two partial sums is not the sum of products: exactly one
  // operand may be partial.
  bool maySumsPass(const OpRule &rule) const {
    size_t passing = 0;
    for (size_t i = 0; i < op.operands.size(); ++i)
      passing += passesSum(problem, op, i);
    return rule.sums == SumPassing::Linear ? passing > 0 : passing == 1;
  }

  void byRule() {
    const OpRule &rule = problem.rules[op.rule];
    LoopSplits fixed(rule.loops.size());
    const std::vector<int> loops = freeLoops(rule, fixed);
    const int places = static_cast<int>(loops.size());
    forAllPlacings(places + (maySumsPass(rule) ? 1 : 0), [&](const std::vector<int> &placing) {
      std::vector<LoopSplits> variants{fixed};
      for (int p = 0; p < places; ++p)
        if (const std::vector<std::string> over = axesAt(placing, p); !over.empty())
          variants = splitLoop(rule, loops[p], over, variants);
      std::vector<std::string> passed = axesAt(placing, places);
      std::sort(passed.begin(), passed.end());
      for (const LoopSplits &splits : variants)
        if (usesAxesOnce(splits, passed))
          add(shardOp(problem, op, splits, passed));
    });
  }

  // Combines every variant with every cut of the loop that has a share for each member.
  std::vector<LoopSplits> splitLoop(const OpRule &rule, int loop, const std::vector<std::string> &over,
                                    const std::vector<LoopSplits> &variants) const {
    std::vector<LoopSplits> split;
    const int64_t parts = problem.mesh.size(over);
    for (const DimCut &cut : cutsOf(rule, loop, parts))
      for (const LoopSplits &variant : variants)
        if (cut.size >= parts) {
          split.push_back(variant);
          split.back()[loop] = cut.over(over);
        }
    return split;
  }

  static bool usesAxesOnce(const LoopSplits &splits, std::vector<std::string> used) {
    for (const DimSharding &split : splits)
      for (const Factor &factor : split.factors)
        used.insert(used.end(), factor.axes.begin(), factor.axes.end());
    std::sort(used.begin(), used.end());
    return std::adjacent_find(used.begin(), used.end()) == used.end();
  }
};

} // namespace

std::vector<OpSharding> choicesOf(const ShardingProblem &problem, OpId op) {
  return Choices(problem, problem.ops[op]).list();
}

} // namespace cleave::partitioner
