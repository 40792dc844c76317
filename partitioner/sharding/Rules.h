// The table of sharding rules: for every op, which dimensions of operands and results move together. Propagation, apply
// and (later) the solver read the same table. After Shardy's factors (openxla/shardy, "sharding rule").
#pragma once
#include "mlir/IR/Operation.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::partitioner {

/// What splitting a factor means for the results.
enum class FactorKind {
  Parallel, // results are split alike
  Sum,      // a contraction: results are partial sums
  Max,      // results are partial maxima
  Min,
  Whole, // may not be split
};

/// A dimension of an op: `runs` of one factor, one after the other. A slice, a pad and a concatenation at multiples of
/// a size have more than one: along a fused product [3 * w] the slice of one w moves a factor of w elements.
struct RuleDim {
  int factor = -1;
  int64_t runs = 1;
};

/// One op's rule. `operands[i][d]` is what dimension d of operand i is made of; several dimensions with the same factor
/// are split alike or not at all.
struct OpRule {
  std::vector<FactorKind> factors;
  std::vector<std::vector<RuleDim>> operands, results;
  /// A partial sum in the operands passes to the results unchanged (in all operands, or in the only tensor that
  /// varies).
  bool linear = false;
  /// Operand that a default tensor-parallel choice may split, and the factor to split (column parallel), or -1.
  int parameterOperand = -1, defaultFactor = -1;
};

/// The dimension that the factor is in; the number of dimensions where it is in none.
size_t dimOf(const std::vector<RuleDim> &dims, int factor);

/// The rule of an op of the graph dialect; empty for reshape, whose dimensions regroup (see Reshape.h), and for ops
/// that are made under any sharding (constant, iota, random_uniform). Throws an internal error for an unknown op.
std::optional<OpRule> shardingRule(mlir::Operation *op);

/// Constant, iota, random_uniform: made locally under whatever sharding their user wants.
bool isFree(mlir::Operation *op);

} // namespace cleave::partitioner
