// Sharding rules as values: for one op, which dimensions of operands and results are split together. The decision
// (Assign.h), the choices of an op (OpSharding.h) and the lookahead (Heads.h) read them. After Shardy's sharding rules
// (openxla/shardy); what Shardy calls a factor is a *loop* here, since a factor is a part of a dimension
// (ir/dist/Sharding.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::partitioner {

/// What splitting a loop means for the results.
enum class LoopKind {
  Parallel, // results are split alike
  Sum,      // a contraction: results are partial sums
  Max,      // results are partial maxima
  Min,
  Whole, // may not be split
};

/// A dimension of an operand or result: `runs` consecutive runs of one loop. Slices, pads and concatenations at
/// multiples of a size have several: in the slice of one w from a fused product [3 * w] the loop has w elements, and
/// the operand has 3 runs of it.
struct RuleDim {
  int loop = -1;
  int64_t runs = 1;
  bool operator==(const RuleDim &) const = default;
};

/// Which operands may be partial sums, so that the results are partial sums over the same axes.
enum class SumPassing {
  None,
  Linear,   // all operands together
  Product,  // one operand, if the other's elements are all equal
  Quotient, // the first operand, if the second's elements are all equal
};

/// The rule of an op. Its loops are those of the nest that computes it, as the letters of an einsum: `bij,bjk->bik` has
/// four. `operands[i][d]` says which loop runs along dimension d of operand i; all dimensions of a loop are split alike
/// or not at all.
struct OpRule {
  std::vector<LoopKind> loops;
  std::vector<std::vector<RuleDim>> operands, results;
  SumPassing sums = SumPassing::None;
  /// Operand that a default tensor-parallel choice may split, and the loop to split (column parallel), or -1.
  int parameterOperand = -1, defaultLoop = -1;
  /// Loops over independent products of activations, such as the heads of an attention.
  std::vector<int> productBatches;
  /// The only operand whose splits decide how the op is split, or -1.
  int leader = -1;
  /// A loop along the result only, split as dimension 0 of the parameter whose gradient the result becomes, or -1.
  int gradientLoop = -1;
  bool operator==(const OpRule &) const = default;
};

/// The first dimension that the loop runs along; the number of dimensions where there is none.
size_t dimOf(const std::vector<RuleDim> &dims, int loop);

/// The number of an operand or result, and one of its dimensions.
struct DimPlace {
  int tensor = 0, dim = 0;
};

/// Makes a rule loop by loop, from the ranks of an op's operands and results.
class RuleBuilder {
public:
  RuleBuilder(const std::vector<size_t> &operandRanks, const std::vector<size_t> &resultRanks);
  /// Adds a loop along the given dimensions; returns its number.
  int loop(LoopKind kind, const std::vector<DimPlace> &operands, const std::vector<DimPlace> &results);
  /// Adds a loop along dimension `dim` of every operand and result.
  int loopThroughAll(LoopKind kind, size_t dim);
  /// Returns the rule; dimensions without a loop may not be split.
  OpRule finish();
  OpRule rule;
};

/// An elementwise op; the operands and its `results` results have the same shape.
OpRule elementwiseRule(size_t rank, size_t operands, size_t results = 1, SumPassing sums = SumPassing::None);
/// Dimension d of the operand becomes dimension `dims[d]` of the result; the others are new.
OpRule broadcastRule(const std::vector<int64_t> &dims, size_t resultRank);
/// Reduces `dims`; `kind` is Sum, Max or Min.
OpRule reduceRule(size_t rank, const std::vector<int64_t> &dims, LoopKind kind);
OpRule transposeRule(const std::vector<int64_t> &permutation);
/// slice and pad: the smaller side is a window of the larger one behind `before` elements. A dimension that keeps its
/// size may be split. Another dimension may be split within runs of the largest size at whose multiples the window
/// begins and ends; if that is one element, the dimension stays whole.
OpRule windowRule(const std::vector<int64_t> &from, const std::vector<int64_t> &to, const std::vector<int64_t> &before);
/// All dimensions except `dim` are split together; `dim` stays whole.
OpRule alongRule(size_t rank, size_t operands, size_t dim);
/// gather: operands (input, index). The elements along dimension `dim` of the input are looked up, so that it stays
/// whole; index and result are split together along it, and all three along the other dimensions.
OpRule gatherRule(size_t rank, size_t dim);
/// Its gradient: operands (gradient, index). Splitting these along `dim` makes partial sums.
OpRule scatterAddRule(size_t rank, size_t dim);
/// Operands and result are split together; dimension `dim` within runs of the largest size that divides it in every
/// operand.
OpRule concatRule(const std::vector<std::vector<int64_t>> &shapes, size_t dim);
/// Looks up rows of a table [rows, width] by ids of `idsRank` dimensions.
OpRule embeddingRule(size_t idsRank);
OpRule embeddingGradRule(size_t idsRank);
/// [..., m, k] times [..., k, n], each operand transposed in memory or not. A second operand of rank 2 is a weight.
OpRule matmulRule(size_t rankA, size_t rankB, bool transposedA, bool transposedB);

/// A convolution of [n, c, h, w], or of [n, h, w, c] with `channelDim` 3: operands (input, weight), (gradient, weight)
/// and (gradient, input). Grouped convolutions keep their channels whole.
OpRule conv2dRule(int channelDim, bool grouped);
OpRule conv2dInputGradRule(int channelDim, bool grouped);
OpRule conv2dWeightGradRule(int channelDim, bool grouped);

/// Pooling and attention: the samples (dimension 0) and the dimension `other` (channels or heads) of all operands and
/// results are split together.
OpRule samplesRule(const std::vector<size_t> &operandRanks, const std::vector<size_t> &resultRanks, size_t other);

} // namespace cleave::partitioner
