// The rules, a short function per family of ops.
#include "partitioner/sharding/Rules.h"

#include <algorithm>
#include <numeric>

namespace cleave::partitioner {

size_t dimOf(const std::vector<RuleDim> &dims, int loop) {
  return std::find_if(dims.begin(), dims.end(), [&](const RuleDim &dim) { return dim.loop == loop; }) - dims.begin();
}

RuleBuilder::RuleBuilder(const std::vector<size_t> &operandRanks, const std::vector<size_t> &resultRanks) {
  for (size_t rank : operandRanks)
    rule.operands.emplace_back(rank);
  for (size_t rank : resultRanks)
    rule.results.emplace_back(rank);
}

int RuleBuilder::loop(LoopKind kind, const std::vector<DimPlace> &operands, const std::vector<DimPlace> &results) {
  const int loop = static_cast<int>(rule.loops.size());
  rule.loops.push_back(kind);
  for (const DimPlace &place : operands)
    rule.operands[place.tensor][place.dim].loop = loop;
  for (const DimPlace &place : results)
    rule.results[place.tensor][place.dim].loop = loop;
  return loop;
}

int RuleBuilder::loopThroughAll(LoopKind kind, size_t dim) {
  const int loop = this->loop(kind, {}, {});
  for (auto *side : {&rule.operands, &rule.results})
    for (auto &dims : *side)
      dims[dim].loop = loop;
  return loop;
}

OpRule RuleBuilder::finish() {
  for (auto *side : {&rule.operands, &rule.results})
    for (auto &dims : *side)
      for (RuleDim &dim : dims)
        if (dim.loop < 0)
          dim.loop = loop(LoopKind::Whole, {}, {});
  return std::move(rule);
}

OpRule elementwiseRule(size_t rank, size_t operands, size_t results, SumPassing sums) {
  RuleBuilder b(std::vector<size_t>(operands, rank), std::vector<size_t>(results, rank));
  for (size_t d = 0; d < rank; ++d)
    b.loopThroughAll(LoopKind::Parallel, d);
  b.rule.sums = sums;
  return b.finish();
}

OpRule broadcastRule(const std::vector<int64_t> &dims, size_t resultRank) {
  RuleBuilder b({dims.size()}, {resultRank});
  for (size_t d = 0; d < dims.size(); ++d)
    b.loop(LoopKind::Parallel, {{0, (int)d}}, {{0, (int)dims[d]}});
  for (size_t d = 0; d < resultRank; ++d)
    if (b.rule.results[0][d].loop < 0)
      b.loop(LoopKind::Parallel, {}, {{0, (int)d}}); // a new dimension: computed under any split
  return b.finish();
}

OpRule reduceRule(size_t rank, const std::vector<int64_t> &dims, LoopKind kind) {
  RuleBuilder b({rank}, {rank - dims.size()});
  int out = 0;
  for (int d = 0; d < (int)rank; ++d)
    if (std::find(dims.begin(), dims.end(), d) != dims.end())
      b.loop(kind, {{0, d}}, {});
    else
      b.loop(LoopKind::Parallel, {{0, d}}, {{0, out++}});
  b.rule.sums = kind == LoopKind::Sum ? SumPassing::Linear : SumPassing::None;
  return b.finish();
}

OpRule transposeRule(const std::vector<int64_t> &permutation) {
  RuleBuilder b({permutation.size()}, {permutation.size()});
  for (size_t d = 0; d < permutation.size(); ++d)
    b.loop(LoopKind::Parallel, {{0, (int)permutation[d]}}, {{0, (int)d}});
  b.rule.sums = SumPassing::Linear;
  return b.finish();
}

OpRule windowRule(const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                  const std::vector<int64_t> &before) {
  RuleBuilder b({from.size()}, {to.size()});
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t inside = std::min(from[d], to[d]), outside = std::max(from[d], to[d]);
    const int64_t run = std::gcd(std::gcd(before[d], inside), outside - before[d] - inside);
    if (run > 1 || inside == outside)
      b.loop(LoopKind::Parallel, {{0, (int)d}}, {{0, (int)d}});
    b.rule.operands[0][d].runs = from[d] / run;
    b.rule.results[0][d].runs = to[d] / run;
  }
  b.rule.sums = SumPassing::Linear;
  return b.finish();
}

OpRule alongRule(size_t rank, size_t operands, size_t dim) {
  RuleBuilder b(std::vector<size_t>(operands, rank), {rank});
  for (size_t d = 0; d < rank; ++d)
    b.loopThroughAll(d == dim ? LoopKind::Whole : LoopKind::Parallel, d);
  return b.finish();
}

/// Loops through all dimensions but `dim` of the operands and the result of a gather or of its gradient.
static RuleBuilder besides(size_t rank, size_t dim) {
  RuleBuilder b({rank, rank}, {rank});
  for (size_t d = 0; d < rank; ++d)
    if (d != dim)
      b.loopThroughAll(LoopKind::Parallel, d);
  return b;
}

OpRule gatherRule(size_t rank, size_t dim) {
  RuleBuilder b = besides(rank, dim);
  b.loop(LoopKind::Parallel, {{1, (int)dim}}, {{0, (int)dim}});
  return b.finish();
}

OpRule scatterAddRule(size_t rank, size_t dim) {
  RuleBuilder b = besides(rank, dim);
  b.loop(LoopKind::Sum, {{0, (int)dim}, {1, (int)dim}}, {});
  return b.finish();
}

OpRule concatRule(const std::vector<std::vector<int64_t>> &shapes, size_t dim) {
  OpRule rule = alongRule(shapes.front().size(), shapes.size(), dim);
  int64_t run = 0, size = 0;
  for (const std::vector<int64_t> &shape : shapes) {
    run = std::gcd(run, shape[dim]);
    size += shape[dim];
  }
  if (run == 1)
    return rule;
  rule.loops[rule.results[0][dim].loop] = LoopKind::Parallel;
  for (size_t i = 0; i < shapes.size(); ++i)
    rule.operands[i][dim].runs = shapes[i][dim] / run;
  rule.results[0][dim].runs = size / run;
  return rule;
}

OpRule embeddingRule(size_t idsRank) {
  const int ids = static_cast<int>(idsRank);
  RuleBuilder b({2, idsRank}, {idsRank + 1});
  for (int d = 0; d < ids; ++d)
    b.loop(LoopKind::Parallel, {{1, d}}, {{0, d}});
  const int rows = b.loop(LoopKind::Sum, {{0, 0}}, {});
  b.loop(LoopKind::Parallel, {{0, 1}}, {{0, ids}});
  b.rule.parameterOperand = 0;
  b.rule.defaultLoop = rows;
  return b.finish();
}

OpRule embeddingGradRule(size_t idsRank) {
  const int ids = static_cast<int>(idsRank);
  RuleBuilder b({idsRank + 1, idsRank}, {2});
  for (int d = 0; d < ids; ++d)
    b.loop(LoopKind::Sum, {{0, d}, {1, d}}, {});
  b.loop(LoopKind::Parallel, {{0, ids}}, {{0, 1}});
  b.rule.gradientLoop = b.loop(LoopKind::Parallel, {}, {{0, 0}}); // rows: computed under any split
  return b.finish();
}

OpRule matmulRule(size_t rankA, size_t rankB, bool transposedA, bool transposedB) {
  const int ra = static_cast<int>(rankA), rb = static_cast<int>(rankB), rc = ra;
  const bool shared = rb == 2 && ra > 2;
  RuleBuilder b({rankA, rankB}, {rankA});
  for (int d = 0; d < ra - 2; ++d) {
    const int batch = shared ? b.loop(LoopKind::Parallel, {{0, d}}, {{0, d}})
                             : b.loop(LoopKind::Parallel, {{0, d}, {1, d}}, {{0, d}});
    if (!shared)
      b.rule.productBatches.push_back(batch);
  }
  b.loop(LoopKind::Parallel, {{0, transposedA ? ra - 1 : ra - 2}}, {{0, rc - 2}});
  b.loop(LoopKind::Sum, {{0, transposedA ? ra - 2 : ra - 1}, {1, transposedB ? rb - 1 : rb - 2}}, {});
  const int columns = b.loop(LoopKind::Parallel, {{1, transposedB ? rb - 2 : rb - 1}}, {{0, rc - 1}});
  if (rb == 2) {
    b.rule.parameterOperand = 1;
    b.rule.defaultLoop = columns;
  }
  return b.finish();
}

OpRule conv2dRule(int channelDim, bool grouped) {
  RuleBuilder b({4, 4}, {4});
  b.loop(LoopKind::Parallel, {{0, 0}}, {{0, 0}});
  if (!grouped) {
    b.loop(LoopKind::Sum, {{0, channelDim}, {1, channelDim}}, {});
    b.rule.defaultLoop = b.loop(LoopKind::Parallel, {{1, 0}}, {{0, channelDim}});
    b.rule.parameterOperand = 1;
  }
  return b.finish();
}

OpRule conv2dInputGradRule(int channelDim, bool grouped) {
  RuleBuilder b({4, 4}, {4});
  b.loop(LoopKind::Parallel, {{0, 0}}, {{0, 0}});
  if (!grouped) {
    b.loop(LoopKind::Sum, {{0, channelDim}, {1, 0}}, {});
    b.loop(LoopKind::Parallel, {{1, channelDim}}, {{0, channelDim}});
  }
  return b.finish();
}

OpRule conv2dWeightGradRule(int channelDim, bool grouped) {
  RuleBuilder b({4, 4}, {4});
  b.loop(LoopKind::Sum, {{0, 0}, {1, 0}}, {});
  if (!grouped) {
    b.loop(LoopKind::Parallel, {{0, channelDim}}, {{0, 0}});
    b.loop(LoopKind::Parallel, {{1, channelDim}}, {{0, channelDim}});
  }
  return b.finish();
}

OpRule samplesRule(const std::vector<size_t> &operandRanks, const std::vector<size_t> &resultRanks, size_t other) {
  RuleBuilder b(operandRanks, resultRanks);
  for (size_t d : {size_t{0}, other})
    b.loopThroughAll(LoopKind::Parallel, d);
  return b.finish();
}

} // namespace cleave::partitioner
