// Loops of pooling for several processors. The header is included by files that are compiled for processors other than
// this machine's: it must not define inline functions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

enum class PoolRule : int64_t { Largest, Average, AverageWithPadding };

/// An image has `inH` x `inW` pixels, its result `outH` x `outW`; a pixel is a row of channels.
struct PoolShape {
  PoolRule rule;
  int64_t channels, inH, inW, outH, outW, kh, kw, strideH, strideW, top, left; ///< top, left: padding
};

/// For elements in f32 and bf16, and places in bytes and in 32-bit numbers: the element of its window, in row order,
/// that is the largest (unused, and null, for averages).
struct PoolKernels {
  /// Row y of the result of an image; `places` of the image.
  void (*forward[2][2])(const PoolShape &shape, const void *image, int64_t y, void *out, void *places);
  /// Row y of the gradient of an image, from `gradients` and `places` of its result.
  void (*backward[2][2])(const PoolShape &shape, const void *gradients, const void *places, int64_t y, void *out);
};

/// For any processor, for those with AVX2, and with AVX-512. The results are the same.
extern const PoolKernels poolSse, poolAvx2, poolAvx512;

} // namespace cleave
