// Affine index expressions over a program's loops, and reshapes of them.
#pragma once
#include "passes/codegen/Program.h"

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
/// Position in a row-major tensor.
Expr linearize(const Index &index, const std::vector<int64_t> &shape);

/// A loop that must be two loops, the inner one of `inner` iterations, before an expression can be taken apart.
struct SplitRequest {
  int loop = -1;
  int64_t inner = 0;
};

/// The inverse of linearize. False where the expression does not come apart; then `split` may name a loop to split.
bool delinearize(const Expr &linear, const std::vector<int64_t> &shape, const std::vector<Loop> &loops, Index &index,
                 SplitRequest &split);

/// The index of a reshape's operand (shape `to`) at `index` of its result (shape `from`): dimension groups that
/// correspond are taken apart one by one, and groups that only collapse need nothing of their loops.
bool reshapeIndex(const Index &index, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                  const std::vector<Loop> &loops, Index &result, SplitRequest &split);

/// True where every loop in `mask` walks `e` once through 0 .. (product of extents) - 1, in some order.
bool isPermutation(const Expr &e, uint32_t mask, const std::vector<Loop> &loops);

} // namespace cleave::passes::kernel
