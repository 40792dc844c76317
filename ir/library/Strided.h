// Strided windows onto row-major memory, as value structs: transposes, slices and reshapes cost nothing where the
// result can still be described by an offset and one stride per dimension.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cleave::library {

using Sizes = std::vector<int64_t>;

/// Element (i0, i1, ...) of shape `shape` lies at offset + sum of i * stride; all in elements.
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
  /// Empty where the elements in row-major order of `shape` have no strides.
  std::optional<Strided> reshaped(const Sizes &shape) const;
  /// Dimension i becomes dims[i] of `shape`; the others repeat (stride 0).
  Strided broadcast(std::span<const int64_t> dims, const Sizes &shape) const;

  // The other way round: this is how the result lies in memory, the answer is how the operand does.
  Strided beforeTranspose(std::span<const int64_t> permutation) const;
};

/// Sizes of a batched product and its three operands' windows: strides are those of the batch dimensions, then of the
/// two matrix dimensions in the order [m, k], [k, n], [m, n].
struct Product {
  Sizes batch;
  int64_t m = 0, n = 0, k = 0;
  Strided a, b, c;

  /// Drops batch dimensions of size 1, joins neighbouring ones, and batch dimensions that b does not have into the
  /// rows.
  void simplify();
};

/// Whether one of the last two strides is 1 (dimensions of size 1 have any), the other at least as large as what it
/// steps over, so that a library takes the matrix as it is. Gives dimensions of size 1 a fitting stride.
bool fitMatrix(Strided &view);

} // namespace cleave::library
