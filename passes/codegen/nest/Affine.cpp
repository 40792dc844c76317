// Affine index expressions.
#include "passes/codegen/nest/Affine.h"

#include <algorithm>

namespace cleave::passes::kernel {

Expr constantExpr(int64_t value) {
  Expr e;
  e.constant = value;
  return e;
}

Expr &operator+=(Expr &a, const Expr &b) {
  for (int l = 0; l < maxLoops; ++l)
    a.coef[l] += b.coef[l];
  a.constant += b.constant;
  return a;
}

Expr scaled(Expr e, int64_t factor) {
  for (int64_t &c : e.coef)
    c *= factor;
  e.constant *= factor;
  return e;
}

uint32_t loopsOf(const Expr &e) {
  uint32_t mask = 0;
  for (int l = 0; l < maxLoops; ++l)
    if (e.coef[l])
      mask |= 1u << l;
  return mask;
}

std::pair<int64_t, int64_t> rangeOf(const Expr &e, const std::vector<Loop> &loops) {
  int64_t low = e.constant, high = e.constant;
  for (size_t l = 0; l < loops.size(); ++l)
    (e.coef[l] < 0 ? low : high) += e.coef[l] * (loops[l].extent - 1);
  return {low, high};
}

std::vector<int64_t> rowMajorStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Expr linearize(const Index &index, const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides = rowMajorStrides(shape);
  Expr e;
  for (size_t i = 0; i < shape.size(); ++i)
    e += scaled(index[i], strides[i]);
  return e;
}

bool delinearize(const Expr &linear, const std::vector<int64_t> &shape, const std::vector<Loop> &loops, Index &index,
                 SplitRequest &split) {
  std::vector<int64_t> strides = rowMajorStrides(shape);
  index.assign(shape.size(), Expr{});
  for (size_t l = 0; l < loops.size(); ++l) {
    int64_t c = linear.coef[l], extent = loops[l].extent;
    if (c == 0)
      continue;
    int dim = -1; // the outermost dimension whose stride divides the loop's step
    for (size_t i = 0; i < shape.size() && dim < 0; ++i)
      if (shape[i] > 1 && strides[i] <= c && c < strides[i] * shape[i])
        dim = static_cast<int>(i);
    if (c < 0 || dim < 0 || c % strides[dim])
      return false;
    int64_t step = c / strides[dim];
    if (step * (extent - 1) >= shape[dim]) { // crosses into the next dimension
      int64_t inner = shape[dim] / step;
      if (shape[dim] % step == 0 && inner < extent && extent % inner == 0)
        split = {static_cast<int>(l), inner};
      return false;
    }
    index[dim].coef[l] += step;
  }
  int64_t rest = linear.constant;
  for (size_t i = 0; i < shape.size(); ++i) {
    index[i].constant = rest / strides[i];
    rest %= strides[i];
    auto [low, high] = rangeOf(index[i], loops);
    if (low < 0 || high >= shape[i])
      return false;
  }
  return true;
}

bool reshapeIndex(const Index &index, const std::vector<int64_t> &from, const std::vector<int64_t> &to,
                  const std::vector<Loop> &loops, Index &result, SplitRequest &split) {
  result.assign(to.size(), Expr{});
  for (size_t i = 0, j = 0; i < from.size() || j < to.size();) {
    Index groupIndex, taken;
    std::vector<int64_t> groupFrom, groupTo;
    size_t first = j;
    int64_t a = 1, c = 1;
    do { // the shortest runs of dimensions with equal products
      if (i < from.size() && (a <= c || j == to.size())) {
        a *= from[i];
        groupFrom.push_back(from[i]);
        groupIndex.push_back(index[i++]);
      } else {
        c *= to[j];
        groupTo.push_back(to[j++]);
      }
    } while (a != c);
    int wide = 0;
    size_t only = 0;
    for (size_t k = 0; k < groupTo.size(); ++k)
      if (groupTo[k] > 1) {
        ++wide;
        only = k;
      }
    Expr linear = linearize(groupIndex, groupFrom);
    if (wide == 1)
      result[first + only] = linear;
    else if (wide > 1 && !delinearize(linear, groupTo, loops, taken, split))
      return false;
    else if (wide > 1)
      std::copy(taken.begin(), taken.end(), result.begin() + static_cast<long>(first));
  }
  return true;
}

bool isPermutation(const Expr &e, uint32_t mask, const std::vector<Loop> &loops) {
  if (e.constant != 0)
    return false;
  std::vector<std::pair<int64_t, int64_t>> digits; // coefficient, extent
  for (size_t l = 0; l < loops.size(); ++l) {
    if (mask >> l & 1)
      digits.push_back({e.coef[l], loops[l].extent});
    else if (e.coef[l])
      return false;
  }
  std::sort(digits.begin(), digits.end());
  int64_t next = 1;
  for (auto [coef, extent] : digits) {
    if (coef != next)
      return false;
    next *= extent;
  }
  return true;
}

} // namespace cleave::passes::kernel
