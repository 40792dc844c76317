// Reductions beside those of Functional.h, running sums, and what depends on order. Dimensions as for sum: none given
// means all, negative ones count from the end. C1: they lie in [0, rank) and differ.
#pragma once
#include "cleave/Tensor.h"

#include <vector>

namespace cleave {

struct VarOptions {
  int64_t correction = 1; ///< divides by count - correction: 1 is unbiased (Bessel), 0 the mean of squares
  bool keepDim = false;
};
/// Mean squared distance from the mean. C2: more values than the correction. C3: x is of a float type.
Tensor var(Tensor x, std::vector<int64_t> dims = {}, VarOptions options = {}, Where where = Where::current());
/// Its root (`std` is C++'s name); the gradient is 0 where it is 0. Rules as var.
Tensor stddev(Tensor x, std::vector<int64_t> dims = {}, VarOptions options = {}, Where where = Where::current());
/// (sum |x|^p)^(1/p); p = infinity: max |x|, -infinity: min |x|, 0: how many are not 0. At 0 the gradient is 0.
/// C2: p is a number. C3: x is of a float type.
Tensor norm(Tensor x, double p = 2, std::vector<int64_t> dims = {}, bool keepDim = false,
            Where where = Where::current());
/// log(sum(e^x)), without overflow. C3: x is of a float type.
Tensor logsumexp(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
/// Product over one dimension, or over all; right also where factors are 0, as is its gradient.
Tensor prod(Tensor x, Where where = Where::current());
Tensor prod(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
/// Sums of the first 1, 2, ... elements along `dim`, in log2(size) steps (Hillis and Steele 1986).
/// C2: elements are numbers, not i1.
Tensor cumsum(Tensor x, int64_t dim, Where where = Where::current());

/// Place of the first largest or smallest element along `dim`, or of the flattened tensor; i32. NaN counts as the
/// largest for both, as infinity does.
Tensor argmax(Tensor x, Where where = Where::current());
Tensor argmax(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
Tensor argmin(Tensor x, Where where = Where::current());
Tensor argmin(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());

/// Elements and the places that they had, i32. The gradient goes to those places.
struct Sorted {
  Tensor values, indices;
};
/// Along `dim`; equal elements keep their order, NaN counts as infinity. It compares all pairs: n^2 comparisons for n
/// elements, one kernel, no memory for them.
Sorted sort(Tensor x, int64_t dim = -1, bool descending = false, Where where = Where::current());
/// The k largest (or smallest) along `dim`, best first. C2: 1 <= k <= size.
Sorted topk(Tensor x, int64_t k, int64_t dim = -1, bool largest = true, Where where = Where::current());

} // namespace cleave
