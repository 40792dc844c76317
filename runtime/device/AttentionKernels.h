// The inner loops of attention, compiled for two sets of instructions like those of WinogradKernels.h: this header must
// not define inline functions either. Sizes and strides count elements.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

struct AttentionKernels {
  int64_t lanes; ///< floats of a vector; columns of products are multiples
  int64_t panel; ///< columns that a product computes at a time
  int64_t rows;  ///< rows of products are multiples of this number

  /// Elements (f32, bf16) to floats times `scale`, and back, row r times factors[r] unless null. Columns of floats from
  /// `width` to the next multiple of `lanes` are zeros.
  void (*load[2])(const void *from, int64_t fromStride, int64_t rows, int64_t width, float scale, float *to,
                  int64_t toStride);
  void (*store[2])(const float *from, int64_t fromStride, int64_t rows, int64_t width, const float *factors, void *to,
                   int64_t toStride);
  /// The transpose of [rows][columns], both multiples of `lanes` and rows of `panel`, as [rows /
  /// panel][columns][panel].
  void (*transpose)(const float *from, int64_t rows, int64_t columns, float *to);
  /// out[i][j] = sum over k of a[i][k] * b[k][j]. Column j of b begins at b + j / panel * perPanel + j % panel.
  void (*multiply)(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t aStride, const float *b,
                   int64_t bStride, int64_t perPanel, float *out, int64_t outStride);
  /// out[i][j] += sum over k of a[k][i] * b[k][j] for `rows` rows i, a multiple of `lanes`.
  void (*addTransposed)(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t aStride, const float *b,
                        int64_t bStride, float *out, int64_t outStride);
  /// Replaces the first `seen` scores s of a row by exp(s - largest s), the others up to `count` by zeros. Returns the
  /// sum.
  float (*exponentials)(float *scores, int64_t seen, int64_t count, float *largest);
  /// Replaces them by exp(s - lse), and `gradients` g of these by exp(s - lse) * (g - correction).
  void (*scoreGradients)(float *scores, float *gradients, int64_t seen, int64_t count, float lse, float correction);
  /// The sum of a[i] * b[i]; `count`: a multiple of `lanes`.
  float (*dot)(const float *a, const float *b, int64_t count);
};

/// Kernels for processors with AVX2 and FMA, and with AVX-512.
extern const AttentionKernels attentionAvx2, attentionAvx512;

} // namespace cleave
