// Arguments of the runtime's own kernels (Kernels.cu), as the host fills them in and the device reads them.
#pragma once
#include <cstdint>

namespace cleave::cuda {

constexpr int mostCopyDims = 8;

/// to[sum dst[d] * i[d]] = from[sum src[d] * i[d]] over all i < size; strides in elements, last dimension fastest.
struct CopyArguments {
  const void *from;
  void *to;
  int64_t total;
  int32_t dims;
  int64_t size[mostCopyDims], src[mostCopyDims], dst[mostCopyDims];
};

/// out[o, j, i] = from[o, index[o, j, i], i], zero where the index is outside [0, extent).
struct GatherArguments {
  const void *from;
  const int32_t *index;
  void *out;
  int64_t outer, extent, count, inner;
};

/// out[o, index[o, j, i], i] += from[o, j, i], in order of j.
struct ScatterArguments {
  const void *from;
  const int32_t *index;
  void *out;
  int64_t outer, extent, count, inner;
};

/// Rows of a table by number: out[i] = table[ids[i] - start], zeros where that is outside [0, rows). A row is `units`
/// units of the kernel's size.
struct LookupArguments {
  const void *table;
  const int32_t *ids;
  void *out;
  int64_t rows, units, count, start;
};

/// The gradient of a lookup. Positions of equal ids are brought together in buckets (whose places depend on which
/// thread came first), put in order there, and summed in order: so the bits depend on nothing but the numbers.
struct LookupGradArguments {
  const int32_t *ids;
  const void *grad;
  void *table;
  int64_t rows, width, count, start;
  int32_t accumulate;
  // scratch, zeroed: cursors[0] places taken, cursors[1] rows present
  int32_t *cursors, *counts, *filled; ///< 2; rows; rows
  // scratch, as it is
  int32_t *places, *present, *loose, *sorted; ///< rows; rows; count; count
};

/// A run of elements that lie together in a slot and in the global tensor.
struct RandomPiece {
  int64_t local, global, count;
};

/// Philox4x32-10, as runtime/device/Philox.h has it.
struct RandomArguments {
  void *out;
  const RandomPiece *pieces;
  const int64_t *step; ///< the training step
  uint64_t key, base;
  int64_t pieceCount;
};

/// Pooling windows over [n, c, h, w]; `wide`: before, `narrow`: after. Strides of both in elements. There are kernels
/// for any sizes, "small" ones for fewer than 2^30 elements and windows of at most 256 (`chosen` is bytes then), and
/// "packed" ones for these where channels are neighbours and fill whole 16 bytes.
struct PoolArguments {
  void *wide, *narrow;
  void *chosen; ///< max: the place of the maximum in its window; as narrow
  int64_t n, c, ih, iw, oh, ow, kh, kw, strideH, strideW, padTop, padLeft;
  int64_t wideStrides[4], narrowStrides[4];
  int32_t includePadding;
};

/// The numbers of plan::Epilogue.
enum class EpilogueKind : int32_t { None, Relu, Gelu, GeluGradient };

/// What follows the sums of a matrix product, done to c[b, row, column] in place: bias[row or column] is added (null:
/// there is none), then the epilogue; for what cuBLASLt does not do itself or does slowly. `byRow`: c is the transposed
/// of the plan's, and so `aux`, whose strides are these, is not of c's shape.
struct EpilogueArguments {
  void *c;
  const void *bias;
  void *aux;
  int64_t batches, rows, columns, batchStride, rowStride;
  int64_t auxRowStride, auxColumnStride; ///< by row and column of c
  int32_t byRow;
  EpilogueKind kind;
};

/// The sums of the rows of a [rows, length], strides in elements: of `slices` pieces of each row into `partial`
/// [slices, rows], and then of these into `sums` [rows].
struct RowSumsArguments {
  const void *a;
  float *partial;
  void *sums;
  int64_t rows, length, rowStride, columnStride, slices;
};

} // namespace cleave::cuda
