// The inner loops of Winograd convolutions, compiled for two sets of instructions: vectors of 8 floats (AVX2 with FMA)
// and of 16 (AVX-512). This header is included by files that are compiled for processors other than this machine's: it
// must not define inline functions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cleave {

/// Where the values of each tile of a matrix [positions][tiles][channels] are. Channel c of tile t is at
/// `t * perTile + c / panel * perPanel + c % panel`, position p at `p * perPosition` more, all in floats.
struct TileMatrix {
  float *data;
  int64_t perPosition, perTile, perPanel;
};

/// The transforms of windows of one size, from and to arrays of one type of elements (f32 or bf16); what is between
/// them is f32. Numbers of channels count elements.
struct WinogradWindow {
  int64_t size, outputs; ///< 3 and 4, or 5 and 2

  /// B^T d B for one tile: `from[6 * y + x]` are its elements, each `channels` of them.
  void (*transformInput)(const void *const *from, int64_t channels, TileMatrix to, int64_t tile);
  /// A row of the same, to positions 0 ... 5.
  void (*transformInputRow[6])(const void *const *from, int64_t channels, TileMatrix to, int64_t tile);
  /// A row of A d A^T for the gradient of one tile of outputs: `from[outputs * y + x]`, each `channels` elements.
  void (*transformGradientRow[6])(const void *const *from, int64_t channels, TileMatrix to, int64_t tile);
  /// G g G^T for weights g = from[row][size][size][channel], to [36][depth][width], width 16 or `panel`. `turned`: rows
  /// are the width and channels the depth; otherwise rows are the depth, and the windows are turned around. `channels`:
  /// of a row in memory.
  void (*transformWeights)(const void *from, int64_t channels, int64_t depth, int64_t width, bool turned, float *to);
  /// A^T m A for one tile: position p of 36 at `from + p * perPosition`, `width` channels. Writes (or adds to) the
  /// outputs `to[outputs * y + x]` that are not null, plus `bias` unless null.
  void (*transformOutput)(const float *from, int64_t perPosition, int64_t width, const void *bias, bool add,
                          void *const *to);
  /// G^T m G for one filter: position p of 36 at `from + p * perPosition`, `width` channels, to element e of the window
  /// at `to + e * channels`.
  void (*transformFilter)(const float *from, int64_t perPosition, int64_t width, bool add, float *to, int64_t channels);
  /// Writes `count` numbers as elements, or adds them to these.
  void (*write)(const float *from, int64_t count, bool add, void *to);
};

/// The pieces of a convolution by F(4x4, 3x3) or F(2x2, 5x5), with the points 0, 1, -1, 2, -2 and infinity (Lavin and
/// Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, whose matrices B, G and A are used). Channels
/// are multiples of 16. Panels are `panel` channels side by side, the last one may have 16.
struct WinogradKernels {
  int64_t panel; ///< channels of a panel
  int64_t rows;  ///< the product computes multiples of this many tiles at a time

  /// out[i][j] = sum over k of a[i][k] * b[k][j] for `count` rows i (a multiple of `rows`) and `width` columns j:
  /// a[i][k] is at i * rowStride + k, b has rows of `width` floats, out as well.
  void (*multiply)(int64_t count, int64_t depth, const float *a, int64_t rowStride, const float *b, int64_t width,
                   float *out);
  /// The same with a[i][k] at i + k * depthStride, rows of b that are `panel` floats apart, rows of the result that are
  /// `across` floats apart, and `count` a multiple of 16; written, or added to what is there.
  void (*multiplyTransposed)(int64_t count, int64_t depth, const float *a, int64_t depthStride, const float *b,
                             int64_t width, bool add, float *out, int64_t across);
  WinogradWindow window3[2], window5[2]; ///< of f32 and of bf16
};

/// Kernels for processors with AVX2 and FMA, and with AVX-512.
extern const WinogradKernels winogradAvx2, winogradAvx512;

} // namespace cleave
