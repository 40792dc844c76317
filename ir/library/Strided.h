// Strided views of row-major memory, as value structs. A transpose, slice or reshape costs nothing if its result can be
// described by an offset and one stride per dimension.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cleave::library {

using Sizes = std::vector<int64_t>;

/// Element (i0, i1, ...) of `shape` is at offset + sum of i * stride, in elements.
struct Strided {
  Sizes shape, strides;
  int64_t offset = 0;
  bool operator==(const Strided &) const = default;

  /// Row-major memory of this shape.
  static Strided contiguous(Sizes shape);
  bool isContiguous() const;

  /// Dimension i of the result is dimension permutation[i].
  Strided transposed(std::span<const int64_t> permutation) const;
  Strided sliced(std::span<const int64_t> starts, std::span<const int64_t> sizes) const;
  /// The same elements in row-major order of `shape`; empty if strides cannot describe them.
  std::optional<Strided> reshaped(const Sizes &shape) const;
  /// Dimension i becomes dims[i] of `shape`; the others repeat (stride 0).
  Strided broadcast(std::span<const int64_t> dims, const Sizes &shape) const;

  /// The view of a transpose's operand, given that this is the view of its result.
  Strided beforeTranspose(std::span<const int64_t> permutation) const;
};

/// The sizes and views of a batched matrix product. Dimensions of the views: the batch, then [m, k], [k, n], [m, n].
struct Product {
  Sizes batch;
  int64_t m = 0, n = 0, k = 0;
  Strided a, b, c;

  /// Removes batch dimensions of size 1, merges adjacent batch dimensions, and merges batch dimensions into the rows m
  /// if b does not depend on them (stride 0).
  void simplify();
};

/// Whether a library can read or write the matrix of the last two dimensions: one stride is 1, and the other is at
/// least the size of the dimension with stride 1. First changes the strides of dimensions of size 1, which are
/// arbitrary, to satisfy this.
bool fitMatrix(Strided &view);

} // namespace cleave::library
