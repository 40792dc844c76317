// Argument structs of the runtime's own kernels (Kernels.cu), shared by host and device.
#pragma once
#include "runtime/device/RandomRows.h"

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

/// out[o, j, i] = from[o, index[o, j, i], i], zero if the index is outside [0, extent).
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

/// Table lookup: out[i] = table[ids[i] - start], zeros if the row is outside [0, rows). A row has `units` units of the
/// kernel's unit size.
struct LookupArguments {
  const void *table;
  const int32_t *ids;
  void *out;
  int64_t rows, units, count, start;
};

/// Gradient of a lookup. Positions with equal ids are collected in buckets (in nondeterministic order), sorted within
/// the bucket, and summed in order, so the bits are deterministic.
struct LookupGradArguments {
  const int32_t *ids;
  const void *grad;
  void *table;
  int64_t rows, width, count, start;
  int32_t accumulate;
  // Zeroed scratch. cursors[0]: number of places used, cursors[1]: number of rows present.
  int32_t *cursors, *counts, *filled; ///< 2; rows; rows
  // Uninitialised scratch.
  int32_t *places, *present, *loose, *sorted; ///< rows; rows; count; count
};

/// A run of elements that are contiguous both in the slot and in the global tensor.
struct RandomPiece {
  int64_t local, global, count;
};

/// Philox4x32-10, as in runtime/device/Philox.h, counted as in runtime/device/RandomRows.h.
struct RandomArguments {
  void *out;
  const RandomPiece *pieces;
  const RandomRows *rows; ///< on the device
  uint64_t key;
  int64_t pieceCount, elements, rowsOfMicrobatch, microbatch;
  float atLeast; ///< of bool: the least number that is true
};

/// Pooling windows over [n, c, h, w]; `wide` is the input, `narrow` the output of forward pooling. Strides of both in
/// elements. There are kernels for any size, "small" ones for fewer than 2^30 elements and windows of at most 256
/// (`chosen` then has bytes), and "packed" ones for small sizes with contiguous channels that fill multiples of 16
/// bytes.
struct PoolArguments {
  void *wide, *narrow;
  void *chosen; ///< max: index of the maximum within its window; shape of narrow
  int64_t n, c, ih, iw, oh, ow, kh, kw, strideH, strideW, padTop, padLeft;
  int64_t wideStrides[4], narrowStrides[4];
  int32_t includePadding;
};

/// Values as in plan::Epilogue.
enum class EpilogueKind : int32_t { None, Relu, Gelu, GeluGradient };

/// An epilogue applied in place to c[b, row, column]: adds bias[row or column] (null: none), then applies the function.
/// For cases that cuBLASLt does not support or runs slowly. `byRow`: c is the transpose of the plan's c, and so is
/// `aux`, which has the strides given here instead of c's.
struct EpilogueArguments {
  void *c;
  const void *bias;
  void *aux;
  int64_t batches, rows, columns, batchStride, rowStride;
  int64_t auxRowStride, auxColumnStride; ///< by row and column of c
  int32_t byRow;
  EpilogueKind kind;
};

/// Row sums of a [rows, length], strides in elements: sums `slices` parts of each row into `partial` [slices, rows],
/// then those into `sums` [rows].
struct RowSumsArguments {
  const void *a;
  float *partial;
  void *sums;
  int64_t rows, length, rowStride, columnStride, slices;
};

} // namespace cleave::cuda
