// Loops of depthwise convolutions for several processors. The header is included by files that are compiled for
// processors other than this machine's: it must not define inline functions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

/// An element of the window: its weights, one for each channel, and what they multiply for the first pixel.
struct DepthwiseTap {
  const float *from, *weights;
};

/// Pixels are rows of channels in f32; channels are multiples of 16.
struct DepthwiseKernels {
  /// out[i * across + c] = start[c] + sum over `count` taps of from[i * step + c] * weights[c], for `pixels` pixels i.
  void (*pixels)(const DepthwiseTap *taps, int64_t count, int64_t pixels, int64_t step, int64_t channels,
                 const float *start, float *out, int64_t across);
  /// sums[t * channels + c] += sum over pixels i of from[i * step + t * perTap + c] * gradient[i * channels + c].
  void (*weights)(const float *from, int64_t taps, int64_t perTap, int64_t pixels, int64_t step, const float *gradient,
                  int64_t channels, float *sums);
  /// Reads `count` elements (f32 or bf16) as floats, and zeros up to a multiple of 16.
  void (*read[2])(const void *from, int64_t count, float *to);
  /// Writes `count` floats as elements, or adds them to these.
  void (*write[2])(const float *from, int64_t count, bool add, void *to);
};

/// For processors with AVX2 and FMA, and with AVX-512.
extern const DepthwiseKernels depthwiseAvx2, depthwiseAvx512;

} // namespace cleave
