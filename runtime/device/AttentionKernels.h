// The inner loops of attention, compiled for several sets of instructions like those of WinogradKernels.h: this header
// must not define inline functions either.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

/// What is done to a row of scores besides the softmax.
struct ScoreExtras {
  const float *bias;         ///< added to the scores; null: none
  const unsigned char *keep; ///< 0: this element of the softmax is dropped; null: none is
  float kept;                ///< factor of the others
};

/// Products are of units: floats, or pairs of neighbouring bf16 numbers, whose products are added to a float. Strides
/// between rows of units, panels and depths count units, all others elements.
struct AttentionKernels {
  int64_t lanes; ///< units of a vector; columns of products are multiples
  int64_t panel; ///< columns that a product computes at a time
  int64_t rows;  ///< rows of products are multiples of this number
  int64_t pairs; ///< numbers of a unit: 1, or 2

  /// Elements (f32, bf16) to rows of units; columns from `width` to the next multiple of lanes * pairs are zeros.
  void (*load[2])(const void *from, int64_t fromStride, int64_t rows, int64_t width, float *to, int64_t toStride);
  /// Sums to elements, row r times factors[r] unless null.
  void (*store[2])(const float *from, int64_t fromStride, int64_t rows, int64_t width, const float *factors, void *to,
                   int64_t toStride);
  /// The transpose of units [rows][columns], both multiples of `lanes` and rows of `panel`, as [rows /
  /// panel][columns][panel].
  void (*transpose)(const float *from, int64_t rows, int64_t columns, float *to);
  /// Units of two rows below each other, from rows whose units are of two columns. `columns`: of numbers, a multiple of
  /// `lanes`. Null if units are single numbers.
  void (*pairRows)(const float *from, int64_t fromStride, int64_t rows, int64_t columns, float *to, int64_t toStride);
  /// out[i][j] = sum over k of a[i][k] * b[k][j]. Column j of b begins at b + j / panel * perPanel + j % panel.
  void (*multiply)(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t aStride, const float *b,
                   int64_t bStride, int64_t perPanel, float *out, int64_t outStride);
  /// out[i][j] += sum over k of a[k][i] * b[k][j] for `rows` rows i, a multiple of `lanes`.
  void (*addTransposed)(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t aStride, const float *b,
                        int64_t bStride, float *out, int64_t outStride);
  /// Replaces the first `seen` products of a row by e = exp(s - the largest s) for the scores s = scale * product +
  /// bias, times their factors f of dropout, in units, and the others up to `count` by zeros. Returns the sum of all e.
  /// If a bias is -infinity for all, these are zeros.
  float (*exponentials)(float *scores, int64_t seen, int64_t count, float scale, const ScoreExtras &extras,
                        float *largest);
  /// Replaces them by f * p, where p = exp(s - lse), and `gradients` g of these by scale * p * (f * g - correction), in
  /// units.
  void (*scoreGradients)(float *scores, float *gradients, int64_t seen, int64_t count, float scale,
                         const ScoreExtras &extras, float lse, float correction);
  /// The sum of the products of the elements (f32, bf16) of two rows.
  float (*dot[2])(const void *a, const void *b, int64_t width);
};

/// Kernels for processors with AVX2 and FMA, with AVX-512, and with AVX-512 BF16 for elements in bf16 alone.
extern const AttentionKernels attentionAvx2, attentionAvx512, attentionBf16;

} // namespace cleave
