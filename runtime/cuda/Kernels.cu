// The runtime's own kernels: what is neither a library's nor generated for the plan. Every kernel strides over its
// work, so any grid computes the same; none needs its threads to meet, so the tests can run them one after another on a
// CPU. Kernel names end in the size of a unit in bytes, or in the element type.
#include "runtime/cuda/KernelTypes.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using namespace cleave::cuda;

namespace {

__device__ int64_t firstItem() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ int64_t allThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__device__ float widen(float x) { return x; }
__device__ float widen(__half x) { return __half2float(x); }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T> __device__ T narrowTo(float x);
template <> __device__ float narrowTo<float>(float x) { return x; }
template <> __device__ __half narrowTo<__half>(float x) { return __float2half_rn(x); }
template <> __device__ __nv_bfloat16 narrowTo<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

template <typename T> __device__ void copyStrided(const CopyArguments &a) {
  const T *from = static_cast<const T *>(a.from);
  T *to = static_cast<T *>(a.to);
  for (int64_t item = firstItem(); item < a.total; item += allThreads()) {
    int64_t rest = item, read = 0, write = 0;
    for (int d = a.dims - 1; d >= 0; --d) {
      const int64_t i = rest % a.size[d];
      rest /= a.size[d];
      read += i * a.src[d];
      write += i * a.dst[d];
    }
    to[write] = from[read];
  }
}

template <typename T> __device__ void gather(const GatherArguments &a) {
  const T *from = static_cast<const T *>(a.from);
  T *out = static_cast<T *>(a.out);
  const int64_t total = a.outer * a.count * a.inner;
  for (int64_t item = firstItem(); item < total; item += allThreads()) {
    const int64_t i = item % a.inner, o = item / a.inner / a.count, at = a.index[item];
    out[item] = at >= 0 && at < a.extent ? from[(o * a.extent + at) * a.inner + i] : T{};
  }
}

template <typename T> __device__ void scatterAdd(const ScatterArguments &a) {
  const T *from = static_cast<const T *>(a.from);
  T *out = static_cast<T *>(a.out);
  for (int64_t item = firstItem(); item < a.outer * a.inner; item += allThreads()) {
    const int64_t i = item % a.inner, o = item / a.inner;
    for (int64_t j = 0; j < a.count; ++j) {
      const int64_t place = (o * a.count + j) * a.inner + i, at = a.index[place];
      if (at < 0 || at >= a.extent)
        continue;
      T &sum = out[(o * a.extent + at) * a.inner + i];
      sum = narrowTo<T>(widen(sum) + widen(from[place]));
    }
  }
}

template <typename T> __device__ void lookup(const LookupArguments &a) {
  const T *table = static_cast<const T *>(a.table);
  T *out = static_cast<T *>(a.out);
  for (int64_t item = firstItem(); item < a.count * a.units; item += allThreads()) {
    const int64_t i = item / a.units, row = a.ids[i] - a.start;
    out[item] = row >= 0 && row < a.rows ? table[row * a.units + item % a.units] : T{};
  }
}

/// The row that position `i` adds to; -1: none.
__device__ int64_t rowOf(const LookupGradArguments &a, int64_t i) {
  const int64_t row = a.ids[i] - a.start;
  return row >= 0 && row < a.rows ? row : -1;
}

/// How often each row occurs.
__device__ void countRows(const LookupGradArguments &a) {
  for (int64_t i = firstItem(); i < a.count; i += allThreads())
    if (const int64_t row = rowOf(a, i); row >= 0)
      atomicAdd(&a.counts[row], 1);
}

/// A bucket for each row that occurs.
__device__ void placeBuckets(const LookupGradArguments &a) {
  for (int64_t row = firstItem(); row < a.rows; row += allThreads())
    if (a.counts[row] > 0) {
      a.places[row] = atomicAdd(&a.cursors[0], a.counts[row]);
      a.present[atomicAdd(&a.cursors[1], 1)] = static_cast<int32_t>(row);
    }
}

__device__ void fillBuckets(const LookupGradArguments &a) {
  for (int64_t i = firstItem(); i < a.count; i += allThreads())
    if (const int64_t row = rowOf(a, i); row >= 0)
      a.loose[a.places[row] + atomicAdd(&a.filled[row], 1)] = static_cast<int32_t>(i);
}

/// Each position goes to the place that its rank in the bucket gives.
__device__ void sortBuckets(const LookupGradArguments &a) {
  for (int64_t i = firstItem(); i < a.count; i += allThreads())
    if (const int64_t row = rowOf(a, i); row >= 0) {
      const int64_t begin = a.places[row], size = a.counts[row];
      int32_t rank = 0;
      for (int64_t p = 0; p < size; ++p)
        rank += a.loose[begin + p] < i;
      a.sorted[begin + rank] = static_cast<int32_t>(i);
    }
}

/// A block sums a row; its threads share out the columns.
template <typename T> __device__ void sumBuckets(const LookupGradArguments &a) {
  const T *grad = static_cast<const T *>(a.grad);
  T *table = static_cast<T *>(a.table);
  for (int64_t k = blockIdx.x; k < a.cursors[1]; k += gridDim.x) {
    const int64_t row = a.present[k], begin = a.places[row], size = a.counts[row];
    for (int64_t w = threadIdx.x; w < a.width; w += blockDim.x) {
      float sum = a.accumulate ? widen(table[row * a.width + w]) : 0;
#pragma unroll 8
      for (int64_t p = 0; p < size; ++p)
        sum += widen(grad[a.sorted[begin + p] * a.width + w]);
      table[row * a.width + w] = narrowTo<T>(sum);
    }
  }
}

__device__ void philox(uint32_t (&c)[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
                              static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

template <typename T> __device__ void randomUniform(const RandomArguments &a) {
  T *out = static_cast<T *>(a.out);
  const uint64_t stream = static_cast<uint64_t>(*a.step);
  for (int64_t p = blockIdx.x; p < a.pieceCount; p += gridDim.x) {
    const RandomPiece piece = a.pieces[p];
    for (int64_t i = threadIdx.x; i < piece.count; i += blockDim.x) {
      const uint64_t index = a.base + static_cast<uint64_t>(piece.global + i), block = index / 4;
      uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(stream >> 32)};
      philox(c, static_cast<uint32_t>(a.key), static_cast<uint32_t>(a.key >> 32));
      out[piece.local + i] = narrowTo<T>(static_cast<float>(c[index % 4] >> 8) * 0x1p-24f);
    }
  }
}

struct PoolPlace {
  int64_t n, c, h, w;
};

/// Item number to place; the dimension whose stride is 1 is fastest, so that neighbours read neighbours.
__device__ PoolPlace placeOf(int64_t item, const PoolArguments &a, int64_t height, int64_t width, bool channelsLast) {
  PoolPlace p;
  if (channelsLast) {
    p.c = item % a.c;
    item /= a.c;
  }
  p.w = item % width;
  item /= width;
  p.h = item % height;
  item /= height;
  if (!channelsLast) {
    p.c = item % a.c;
    item /= a.c;
  }
  p.n = item;
  return p;
}

__device__ int64_t at(const int64_t (&strides)[4], int64_t n, int64_t c, int64_t h, int64_t w) {
  return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
}

/// Calls fn(h, w, y, x) for every element (h, w) that window (oh, ow) has at (y, x), in order; padding is left out.
template <typename Fn> __device__ void forElements(const PoolArguments &a, int64_t oh, int64_t ow, Fn fn) {
  for (int64_t y = 0; y < a.kh; ++y)
    for (int64_t x = 0; x < a.kw; ++x) {
      const int64_t h = oh * a.strideH - a.padTop + y, w = ow * a.strideW - a.padLeft + x;
      if (h >= 0 && h < a.ih && w >= 0 && w < a.iw)
        fn(h, w, y, x);
    }
}

template <typename T> __device__ void maxForward(const PoolArguments &a) {
  const T *wide = static_cast<const T *>(a.wide);
  T *narrow = static_cast<T *>(a.narrow);
  for (int64_t item = firstItem(); item < a.n * a.c * a.oh * a.ow; item += allThreads()) {
    const PoolPlace p = placeOf(item, a, a.oh, a.ow, a.narrowStrides[1] == 1);
    float best = 0;
    int32_t chosen = -1;
    forElements(a, p.h, p.w, [&](int64_t h, int64_t w, int64_t y, int64_t x) {
      const float value = widen(wide[at(a.wideStrides, p.n, p.c, h, w)]);
      if (chosen < 0 || value > best || (value != value && best == best)) {
        best = value;
        chosen = static_cast<int32_t>(y * a.kw + x);
      }
    });
    const int64_t place = at(a.narrowStrides, p.n, p.c, p.h, p.w);
    narrow[place] = narrowTo<T>(best);
    a.chosen[place] = chosen;
  }
}

/// Calls fn(oh, ow, y, x) for every window that has (h, w) at (y, x), in order.
template <typename Fn> __device__ void forWindows(const PoolArguments &a, int64_t h, int64_t w, Fn fn) {
  for (int64_t y = 0; y < a.kh; ++y) {
    const int64_t top = h + a.padTop - y;
    if (top < 0 || top % a.strideH != 0 || top / a.strideH >= a.oh)
      continue;
    for (int64_t x = 0; x < a.kw; ++x) {
      const int64_t left = w + a.padLeft - x;
      if (left >= 0 && left % a.strideW == 0 && left / a.strideW < a.ow)
        fn(top / a.strideH, left / a.strideW, y, x);
    }
  }
}

template <typename T> __device__ void maxBackward(const PoolArguments &a) {
  T *wide = static_cast<T *>(a.wide);
  const T *narrow = static_cast<const T *>(a.narrow);
  for (int64_t item = firstItem(); item < a.n * a.c * a.ih * a.iw; item += allThreads()) {
    const PoolPlace p = placeOf(item, a, a.ih, a.iw, a.wideStrides[1] == 1);
    float sum = 0;
    forWindows(a, p.h, p.w, [&](int64_t oh, int64_t ow, int64_t y, int64_t x) {
      const int64_t place = at(a.narrowStrides, p.n, p.c, oh, ow);
      if (a.chosen[place] == y * a.kw + x)
        sum += widen(narrow[place]);
    });
    wide[at(a.wideStrides, p.n, p.c, p.h, p.w)] = narrowTo<T>(sum);
  }
}

/// How many elements the average of window (oh, ow) divides by.
__device__ float windowSize(const PoolArguments &a, int64_t oh, int64_t ow) {
  if (a.includePadding)
    return static_cast<float>(a.kh * a.kw);
  const int64_t top = oh * a.strideH - a.padTop, left = ow * a.strideW - a.padLeft;
  const int64_t bottom = top + a.kh < a.ih ? top + a.kh : a.ih, right = left + a.kw < a.iw ? left + a.kw : a.iw;
  return static_cast<float>((bottom - (top > 0 ? top : 0)) * (right - (left > 0 ? left : 0)));
}

template <typename T> __device__ void averageForward(const PoolArguments &a) {
  const T *wide = static_cast<const T *>(a.wide);
  T *narrow = static_cast<T *>(a.narrow);
  for (int64_t item = firstItem(); item < a.n * a.c * a.oh * a.ow; item += allThreads()) {
    const PoolPlace p = placeOf(item, a, a.oh, a.ow, a.narrowStrides[1] == 1);
    float sum = 0;
    forElements(a, p.h, p.w,
                [&](int64_t h, int64_t w, int64_t, int64_t) { sum += widen(wide[at(a.wideStrides, p.n, p.c, h, w)]); });
    narrow[at(a.narrowStrides, p.n, p.c, p.h, p.w)] = narrowTo<T>(sum / windowSize(a, p.h, p.w));
  }
}

template <typename T> __device__ void averageBackward(const PoolArguments &a) {
  T *wide = static_cast<T *>(a.wide);
  const T *narrow = static_cast<const T *>(a.narrow);
  for (int64_t item = firstItem(); item < a.n * a.c * a.ih * a.iw; item += allThreads()) {
    const PoolPlace p = placeOf(item, a, a.ih, a.iw, a.wideStrides[1] == 1);
    float sum = 0;
    forWindows(a, p.h, p.w, [&](int64_t oh, int64_t ow, int64_t, int64_t) {
      sum += widen(narrow[at(a.narrowStrides, p.n, p.c, oh, ow)]) / windowSize(a, oh, ow);
    });
    wide[at(a.wideStrides, p.n, p.c, p.h, p.w)] = narrowTo<T>(sum);
  }
}

__device__ inline float tanhOfGelu(float x) { return tanhf(0.7978845608f * (x + 0.044715f * x * x * x)); }

__device__ inline float geluSlope(float x) {
  const float t = tanhOfGelu(x);
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/// `aux`: null, or the element that belongs to x.
template <typename C> __device__ float epilogueOf(EpilogueKind kind, float x, C *aux) {
  switch (kind) {
  case EpilogueKind::Relu:
    return x < 0 ? 0 : x;
  case EpilogueKind::Gelu:
    if (aux)
      *aux = narrowTo<C>(x);
    return 0.5f * x * (1 + tanhOfGelu(x));
  case EpilogueKind::GeluGradient:
    return x * geluSlope(widen(*aux));
  default:
    return x;
  }
}

template <typename C, typename B> __device__ void applyEpilogue(const EpilogueArguments &a) {
  C *c = static_cast<C *>(a.c), *aux = static_cast<C *>(a.aux);
  const B *bias = static_cast<const B *>(a.bias);
  for (int64_t item = firstItem(); item < a.batches * a.rows * a.columns; item += allThreads()) {
    const int64_t column = item % a.columns, row = item / a.columns % a.rows, batch = item / a.columns / a.rows;
    C &x = c[batch * a.batchStride + row * a.rowStride + column];
    const float sum = widen(x) + (bias ? widen(bias[a.byRow ? row : column]) : 0);
    C *beside = aux ? aux + row * a.auxRowStride + column * a.auxColumnStride : nullptr;
    x = narrowTo<C>(epilogueOf(a.kind, sum, beside));
  }
}

} // namespace

#ifndef CLEAVE_KERNEL // the tests make functions for the host of them
#define CLEAVE_KERNEL(name, arguments, call)                                                                           \
  __global__ void name(arguments a) { call(a); }
#endif

extern "C" {

CLEAVE_KERNEL(cleave_copy_1, CopyArguments, copyStrided<uint8_t>)
CLEAVE_KERNEL(cleave_copy_2, CopyArguments, copyStrided<uint16_t>)
CLEAVE_KERNEL(cleave_copy_4, CopyArguments, copyStrided<uint32_t>)
CLEAVE_KERNEL(cleave_copy_8, CopyArguments, copyStrided<uint64_t>)
CLEAVE_KERNEL(cleave_copy_16, CopyArguments, copyStrided<uint4>)

CLEAVE_KERNEL(cleave_lookup_1, LookupArguments, lookup<uint8_t>)
CLEAVE_KERNEL(cleave_lookup_2, LookupArguments, lookup<uint16_t>)
CLEAVE_KERNEL(cleave_lookup_4, LookupArguments, lookup<uint32_t>)
CLEAVE_KERNEL(cleave_lookup_8, LookupArguments, lookup<uint64_t>)
CLEAVE_KERNEL(cleave_lookup_16, LookupArguments, lookup<uint4>)

CLEAVE_KERNEL(cleave_gather_1, GatherArguments, gather<uint8_t>)
CLEAVE_KERNEL(cleave_gather_2, GatherArguments, gather<uint16_t>)
CLEAVE_KERNEL(cleave_gather_4, GatherArguments, gather<uint32_t>)
CLEAVE_KERNEL(cleave_gather_8, GatherArguments, gather<uint64_t>)

CLEAVE_KERNEL(cleave_scatter_add_f32, ScatterArguments, scatterAdd<float>)
CLEAVE_KERNEL(cleave_scatter_add_f16, ScatterArguments, scatterAdd<__half>)
CLEAVE_KERNEL(cleave_scatter_add_bf16, ScatterArguments, scatterAdd<__nv_bfloat16>)

CLEAVE_KERNEL(cleave_lookup_count, LookupGradArguments, countRows)
CLEAVE_KERNEL(cleave_lookup_place, LookupGradArguments, placeBuckets)
CLEAVE_KERNEL(cleave_lookup_fill, LookupGradArguments, fillBuckets)
CLEAVE_KERNEL(cleave_lookup_sort, LookupGradArguments, sortBuckets)
CLEAVE_KERNEL(cleave_lookup_sum_f32, LookupGradArguments, sumBuckets<float>)
CLEAVE_KERNEL(cleave_lookup_sum_f16, LookupGradArguments, sumBuckets<__half>)
CLEAVE_KERNEL(cleave_lookup_sum_bf16, LookupGradArguments, sumBuckets<__nv_bfloat16>)

CLEAVE_KERNEL(cleave_random_f32, RandomArguments, randomUniform<float>)
CLEAVE_KERNEL(cleave_random_f16, RandomArguments, randomUniform<__half>)
CLEAVE_KERNEL(cleave_random_bf16, RandomArguments, randomUniform<__nv_bfloat16>)

CLEAVE_KERNEL(cleave_max_forward_f32, PoolArguments, maxForward<float>)
CLEAVE_KERNEL(cleave_max_forward_f16, PoolArguments, maxForward<__half>)
CLEAVE_KERNEL(cleave_max_forward_bf16, PoolArguments, maxForward<__nv_bfloat16>)
CLEAVE_KERNEL(cleave_max_backward_f32, PoolArguments, maxBackward<float>)
CLEAVE_KERNEL(cleave_max_backward_f16, PoolArguments, maxBackward<__half>)
CLEAVE_KERNEL(cleave_max_backward_bf16, PoolArguments, maxBackward<__nv_bfloat16>)
CLEAVE_KERNEL(cleave_average_forward_f32, PoolArguments, averageForward<float>)
CLEAVE_KERNEL(cleave_average_forward_f16, PoolArguments, averageForward<__half>)
CLEAVE_KERNEL(cleave_average_forward_bf16, PoolArguments, averageForward<__nv_bfloat16>)
CLEAVE_KERNEL(cleave_average_backward_f32, PoolArguments, averageBackward<float>)
CLEAVE_KERNEL(cleave_average_backward_f16, PoolArguments, averageBackward<__half>)
CLEAVE_KERNEL(cleave_average_backward_bf16, PoolArguments, averageBackward<__nv_bfloat16>)

#define CLEAVE_EPILOGUE(c, C)                                                                                          \
  CLEAVE_KERNEL(cleave_epilogue_##c##_f32, EpilogueArguments, (applyEpilogue<C, float>))                               \
  CLEAVE_KERNEL(cleave_epilogue_##c##_f16, EpilogueArguments, (applyEpilogue<C, __half>))                              \
  CLEAVE_KERNEL(cleave_epilogue_##c##_bf16, EpilogueArguments, (applyEpilogue<C, __nv_bfloat16>))
CLEAVE_EPILOGUE(f32, float)
CLEAVE_EPILOGUE(f16, __half)
CLEAVE_EPILOGUE(bf16, __nv_bfloat16)
}
