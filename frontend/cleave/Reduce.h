// Further reductions, cumulative sums, and sorting. `dims` are as for sum: empty means all, and negative dimensions
// count from the end. C1 of every function: dimensions lie in [0, rank) and differ.
#pragma once
#include "cleave/Tensor.h"

#include <vector>

namespace cleave {

struct VarOptions {
  int64_t correction = 1; ///< the divisor is count - correction: 1 is unbiased (Bessel), 0 gives the mean of squares
  bool keepDim = false;
};
/// Mean squared distance from the mean. C2: there are more values than the correction. C3: x has a float type.
Tensor var(Tensor x, std::vector<int64_t> dims = {}, VarOptions options = {}, Where where = Where::current());
/// Square root of var (named to avoid `std`); the gradient is 0 if the result is 0. Rules as var.
Tensor stddev(Tensor x, std::vector<int64_t> dims = {}, VarOptions options = {}, Where where = Where::current());
/// (sum |x|^p)^(1/p); p = infinity: max |x|, -infinity: min |x|, 0: number of nonzero elements. The gradient at 0 is 0.
/// C2: p is not NaN. C3: x has a float type.
Tensor norm(Tensor x, double p = 2, std::vector<int64_t> dims = {}, bool keepDim = false,
            Where where = Where::current());
/// log(sum(e^x)), without overflow. C3: x has a float type.
Tensor logsumexp(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
/// Product over one dimension, or over all. The gradient is correct even if factors are 0.
Tensor prod(Tensor x, Where where = Where::current());
Tensor prod(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
/// Element i along `dim` is the sum of elements 0 to i, computed in log2(size) steps (Hillis and Steele 1986). C2:
/// elements are numbers, not i1.
Tensor cumsum(Tensor x, int64_t dim, Where where = Where::current());

/// Element i along `dim` is the product of elements 0 to i, computed as cumsum. The gradient is correct even if factors
/// are 0. C2: elements are numbers, not i1.
Tensor cumprod(Tensor x, int64_t dim, Where where = Where::current());
/// i1: whether any or every element is true: not 0 (NaN is not 0).
Tensor any(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());
Tensor all(Tensor x, std::vector<int64_t> dims = {}, bool keepDim = false, Where where = Where::current());

/// Index of the maximum or minimum along `dim`, or of the flattened tensor; i32: the first NaN if there is one,
/// otherwise the first of equal elements.
Tensor argmax(Tensor x, Where where = Where::current());
Tensor argmax(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
Tensor argmin(Tensor x, Where where = Where::current());
Tensor argmin(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());

/// Elements and their original indices (i32). The gradient of `values` goes to the elements at those indices.
struct Sorted {
  Tensor values, indices;
};
/// The maximum or minimum along `dim` and its index: the first NaN if there is one, otherwise the first of equal
/// elements, which alone receives the gradient.
Sorted maxWithIndices(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
Sorted minWithIndices(Tensor x, int64_t dim, bool keepDim = false, Where where = Where::current());
/// Stable sort along `dim`, in which NaN is larger than infinity. It compares all pairs: n^2 comparisons for n
/// elements, in one kernel without temporary memory.
Sorted sort(Tensor x, int64_t dim = -1, bool descending = false, Where where = Where::current());
/// The k largest (or smallest) along `dim`, best first, in the order of sort. C2: 1 <= k <= size.
Sorted topk(Tensor x, int64_t k, int64_t dim = -1, bool largest = true, Where where = Where::current());

} // namespace cleave
