// Affine index expressions over a loop nest's loops, and their reshapes.
#pragma once
#include "passes/codegen/nest/LoopNest.h"

#include <vector>

namespace cleave::passes::kernel {

using Index = std::vector<Expr>; // one expression per dimension

Expr constantExpr(int64_t value);
Expr &operator+=(Expr &a, const Expr &b);
Expr scaled(Expr e, int64_t factor);
/// Bit l: the expression depends on loop l.
uint32_t loopsOf(const Expr &e);
/// Smallest and largest value over all iterations.
std::pair<int64_t, int64_t> rangeOf(const Expr &e, const std::vector<Loop> &loops);

std::vector<int64_t> rowMajorStrides(const std::vector<int64_t> &shape);
/// Linear position in a row-major tensor.
Expr linearize(const Index &index, const std::vector<int64_t> &shape);

/// A request to split a loop, with an inner loop of `inner` iterations, so that delinearize can succeed.
struct SplitRequest {
  int loop = -1;
  int64_t inner = 0;
};

/// The inverse of linearize. Returns false if it does not exist; `split` may then name a loop to split.
bool delinearize(const Expr &linear, const std::vector<int64_t> &shape, const std::vector<Loop> &loops, Index &index,
                 SplitRequest &split);

/// The index of a reshape's operand (shape `to`) for `index` of its result (shape `from`). Handles corresponding groups
/// of dimensions separately; a group that only collapses needs no delinearize.
bool reshapeIndex(const Index &index, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                  const std::vector<Loop> &loops, Index &result, SplitRequest &split);

/// True if the loops in `mask` take `e` through each of 0 .. (product of extents) - 1 exactly once, in any order.
bool isPermutation(const Expr &e, uint32_t mask, const std::vector<Loop> &loops);

} // namespace cleave::passes::kernel
