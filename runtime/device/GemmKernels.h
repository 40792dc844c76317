// The inner loops of matrix products, compiled for several sets of instructions like those of WinogradKernels.h: this
// header must not define inline functions either.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

/// Where sums go: to elements whose first is `shift` bytes after a row's pointer.
struct GemmResult {
  void *const *rows;
  int64_t shift;
  bool half;               ///< bf16, otherwise f32
  bool add;                ///< to what is there
  const float *columnBias; ///< added to every row, unless null
  const float *rowBias;    ///< added to every column, unless null
};

/// Where rows of units of a left matrix are: of row i and tap t, unit u is `u * perUnit` bytes after rows[t * perTap +
/// i].
struct GemmLeft {
  const void *const *rows;
  int64_t perTap, perUnit;
};

/// Memory that is read next, which a product brings into the cache while it computes: its line for unit u is `u * step`
/// bytes after `from`.
struct GemmAhead {
  const void *from;
  int64_t step;
};

/// Products of units: floats, or pairs of bf16 numbers that are neighbours along the depth, whose products are added to
/// a float. Arrays of two functions are for elements in f32 and in bf16. Where the depth ends within a unit, or rows or
/// columns within a vector, zeros follow.
struct GemmKernels {
  int64_t lanes; ///< units of a vector; rows of packed units are multiples
  int64_t panel; ///< columns of a panel
  int64_t rows;  ///< that `multiply` computes at a time, at most
  int64_t pairs; ///< numbers of a unit: 1, or 2

  /// A panel [units of the depth][panel] of a right matrix, or of a left one that is turned around. Its element (k, j)
  /// is at from[k * stride + j] (`packRows`), or at from[j * stride + k] (`packColumns`).
  void (*packRows[2])(const void *from, int64_t stride, int64_t depth, int64_t columns, float *panel);
  void (*packColumns[2])(const void *from, int64_t stride, int64_t depth, int64_t columns, float *panel);
  /// Rows of units of a left matrix. Its element (i, k) is at from[i * stride + k].
  void (*loadRows[2])(const void *from, int64_t stride, int64_t depth, int64_t rows, float *to, int64_t toStride);
  /// The panel of `columns` columns whose row k, in memory, is at rows[k] + first.
  void (*packGathered[2])(const void *const *rows, int64_t first, int64_t depth, int64_t columns, float *panel);
  /// Sums of `rows` rows and `columns` columns, at most a panel's, over `taps` times `units` units. The panel of tap t
  /// is at panels[t]. While at most GemmKernels::rows of them are computed, one of the `most` parts of `fetched` comes
  /// into the cache, as far as there are any; null if there are none.
  void (*multiply)(int64_t rows, int64_t columns, int64_t taps, int64_t units, const GemmLeft &left,
                   const float *const *panels, const GemmResult &result, const GemmAhead *fetched, int64_t most);
};

/// Kernels for processors with AVX2 and FMA, with AVX-512, and with AVX-512 BF16 for products of bf16 numbers.
extern const GemmKernels gemmAvx2, gemmAvx512, gemmBf16;

} // namespace cleave
