// The runtime's own kernels, for steps that neither a library nor generated code runs. Every kernel is a grid-stride
// loop, so any grid gives the same result. No kernel synchronises its threads, so that tests can run them one after
// another on a CPU. Kernel names end in the unit size in bytes, or in the element type.
#include "runtime/cuda/kernels/KernelTypes.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

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

/// The row to which position `i` adds; -1: none.
__device__ int64_t rowOf(const LookupGradArguments &a, int64_t i) {
  const int64_t row = a.ids[i] - a.start;
  return row >= 0 && row < a.rows ? row : -1;
}

/// Counts the occurrences of each row.
__device__ void countRows(const LookupGradArguments &a) {
  for (int64_t i = firstItem(); i < a.count; i += allThreads())
    if (const int64_t row = rowOf(a, i); row >= 0)
      atomicAdd(&a.counts[row], 1);
}

/// Allocates a bucket for each row that occurs.
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

/// Moves each position to its rank within the bucket.
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

/// A block sums one row; its threads divide the columns.
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
  const cleave::RandomCounter counter(a.elements, a.rowsOfMicrobatch, a.microbatch, *a.rows);
  const uint64_t stream = a.rows->stream;
  for (int64_t p = blockIdx.x; p < a.pieceCount; p += gridDim.x) {
    const RandomPiece piece = a.pieces[p];
    for (int64_t i = threadIdx.x; i < piece.count; i += blockDim.x) {
      const uint64_t index = counter.place(piece.global + i), block = index / 4;
      uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(stream >> 32)};
      philox(c, static_cast<uint32_t>(a.key), static_cast<uint32_t>(a.key >> 32));
      const float number = static_cast<float>(c[index % 4] >> 8) * 0x1p-24f;
      if constexpr (std::is_same_v<T, bool>)
        out[piece.local + i] = number >= a.atLeast;
      else
        out[piece.local + i] = narrowTo<T>(number);
    }
  }
}

/// Adjacent channels of one position, read and written in one access.
template <typename T, int V> struct alignas(sizeof(T) * V) Pack {
  T at[V];
};

template <typename T, int V> __device__ Pack<T, V> narrowAll(const float (&from)[V]) {
  Pack<T, V> to;
  for (int i = 0; i < V; ++i)
    to.at[i] = narrowTo<T>(from[i]);
  return to;
}

/// Types of a pooling kernel. I: indices; V: adjacent channels per item (channels last); C: index of the maximum within
/// its window.
template <typename I, int V, typename C> struct PoolForm {
  using Index = I;
  using Choice = C;
  static constexpr int width = V;
};

template <typename I> __device__ I placeIn(const int64_t (&strides)[4], I n, I c, I h, I w) {
  return n * static_cast<I>(strides[0]) + c * static_cast<I>(strides[1]) + h * static_cast<I>(strides[2]) +
         w * static_cast<I>(strides[3]);
}

/// Calls fn(n, c, h, w) for this thread's items of [n, c, height, width]. The dimension with stride 1 is fastest, so
/// that memory accesses are coalesced.
template <typename Form, typename Fn>
__device__ void forItems(const PoolArguments &a, int64_t height, int64_t width, bool channelsLast, Fn fn) {
  using I = typename Form::Index;
  const I channels = static_cast<I>(a.c) / Form::width, columns = static_cast<I>(width), rows = static_cast<I>(height);
  const int64_t items = a.n * (a.c / Form::width) * height * width;
  for (int64_t item = firstItem(); item < items; item += allThreads()) {
    I rest = static_cast<I>(item), c = 0;
    if (channelsLast) {
      c = rest % channels;
      rest /= channels;
    }
    const I w = rest % columns;
    rest /= columns;
    const I h = rest % rows;
    rest /= rows;
    if (!channelsLast) {
      c = rest % channels;
      rest /= channels;
    }
    fn(rest, c * Form::width, h, w);
  }
}

/// Calls fn(h, w, y, x) for every element (h, w) at position (y, x) of window (oh, ow), in order, skipping the padding.
template <typename I, typename Fn> __device__ void forElements(const PoolArguments &a, I oh, I ow, Fn fn) {
  const I top = oh * static_cast<I>(a.strideH) - static_cast<I>(a.padTop),
          left = ow * static_cast<I>(a.strideW) - static_cast<I>(a.padLeft);
  for (I y = 0; y < static_cast<I>(a.kh); ++y)
    for (I x = 0; x < static_cast<I>(a.kw); ++x)
      if (top + y >= 0 && top + y < static_cast<I>(a.ih) && left + x >= 0 && left + x < static_cast<I>(a.iw))
        fn(top + y, left + x, y, x);
}

/// The windows first ... last - 1 that cover element `at` (including padding) along one dimension.
template <typename I> struct Windows {
  I first, last;
  __device__ Windows(I at, I kernel, I stride, I count)
      : first(at < kernel ? 0 : (at - kernel) / stride + 1), last(at / stride + 1 < count ? at / stride + 1 : count) {}
};

/// Calls fn(oh, ow, y, x) for every window that has (h, w) at (y, x), in order.
template <typename I, typename Fn> __device__ void forWindows(const PoolArguments &a, I h, I w, Fn fn) {
  const I top = h + static_cast<I>(a.padTop), left = w + static_cast<I>(a.padLeft);
  const I strideH = static_cast<I>(a.strideH), strideW = static_cast<I>(a.strideW);
  const Windows<I> rows(top, static_cast<I>(a.kh), strideH, static_cast<I>(a.oh)),
      columns(left, static_cast<I>(a.kw), strideW, static_cast<I>(a.ow));
  for (I oh = rows.first; oh < rows.last; ++oh)
    for (I ow = columns.first; ow < columns.last; ++ow)
      fn(oh, ow, top - oh * strideH, left - ow * strideW);
}

template <typename T, typename Form> __device__ void maxForward(const PoolArguments &a) {
  using I = typename Form::Index;
  using Elements = Pack<T, Form::width>;
  using Choices = Pack<typename Form::Choice, Form::width>;
  const T *wide = static_cast<const T *>(a.wide);
  T *narrow = static_cast<T *>(a.narrow);
  auto *chosen = static_cast<typename Form::Choice *>(a.chosen);
  forItems<Form>(a, a.oh, a.ow, a.narrowStrides[1] == 1, [&](I n, I c, I oh, I ow) {
    float best[Form::width] = {};
    Choices choices = {};
    bool any = false;
    forElements<I>(a, oh, ow, [&](I h, I w, I y, I x) {
      const Elements from = *reinterpret_cast<const Elements *>(wide + placeIn<I>(a.wideStrides, n, c, h, w));
      for (int i = 0; i < Form::width; ++i) {
        const float value = widen(from.at[i]);
        if (!any || value > best[i] || value != value) {
          best[i] = value;
          choices.at[i] = static_cast<typename Form::Choice>(y * static_cast<I>(a.kw) + x);
        }
      }
      any = true;
    });
    const I place = placeIn<I>(a.narrowStrides, n, c, oh, ow);
    *reinterpret_cast<Elements *>(narrow + place) = narrowAll<T>(best);
    *reinterpret_cast<Choices *>(chosen + place) = choices;
  });
}

template <typename T, typename Form> __device__ void maxBackward(const PoolArguments &a) {
  using I = typename Form::Index;
  using Elements = Pack<T, Form::width>;
  using Choices = Pack<typename Form::Choice, Form::width>;
  T *wide = static_cast<T *>(a.wide);
  const T *narrow = static_cast<const T *>(a.narrow);
  const auto *chosen = static_cast<const typename Form::Choice *>(a.chosen);
  forItems<Form>(a, a.ih, a.iw, a.wideStrides[1] == 1, [&](I n, I c, I h, I w) {
    float sum[Form::width] = {};
    forWindows<I>(a, h, w, [&](I oh, I ow, I y, I x) {
      const I place = placeIn<I>(a.narrowStrides, n, c, oh, ow);
      const Choices choices = *reinterpret_cast<const Choices *>(chosen + place);
      const Elements from = *reinterpret_cast<const Elements *>(narrow + place);
      for (int i = 0; i < Form::width; ++i)
        if (static_cast<I>(choices.at[i]) == y * static_cast<I>(a.kw) + x)
          sum[i] += widen(from.at[i]);
    });
    *reinterpret_cast<Elements *>(wide + placeIn<I>(a.wideStrides, n, c, h, w)) = narrowAll<T>(sum);
  });
}

/// The divisor of the average of window (oh, ow).
template <typename I> __device__ float windowSize(const PoolArguments &a, I oh, I ow) {
  if (a.includePadding)
    return static_cast<float>(a.kh * a.kw);
  const I top = oh * static_cast<I>(a.strideH) - static_cast<I>(a.padTop),
          left = ow * static_cast<I>(a.strideW) - static_cast<I>(a.padLeft);
  const I bottom = top + static_cast<I>(a.kh) < static_cast<I>(a.ih) ? top + static_cast<I>(a.kh)
                                                                     : static_cast<I>(a.ih),
          right = left + static_cast<I>(a.kw) < static_cast<I>(a.iw) ? left + static_cast<I>(a.kw)
                                                                     : static_cast<I>(a.iw);
  return static_cast<float>((bottom - (top > 0 ? top : 0)) * (right - (left > 0 ? left : 0)));
}

template <typename T, typename Form> __device__ void averageForward(const PoolArguments &a) {
  using I = typename Form::Index;
  using Elements = Pack<T, Form::width>;
  const T *wide = static_cast<const T *>(a.wide);
  T *narrow = static_cast<T *>(a.narrow);
  forItems<Form>(a, a.oh, a.ow, a.narrowStrides[1] == 1, [&](I n, I c, I oh, I ow) {
    float sum[Form::width] = {};
    forElements<I>(a, oh, ow, [&](I h, I w, I, I) {
      const Elements from = *reinterpret_cast<const Elements *>(wide + placeIn<I>(a.wideStrides, n, c, h, w));
      for (int i = 0; i < Form::width; ++i)
        sum[i] += widen(from.at[i]);
    });
    const float size = windowSize<I>(a, oh, ow);
    for (float &each : sum)
      each /= size;
    *reinterpret_cast<Elements *>(narrow + placeIn<I>(a.narrowStrides, n, c, oh, ow)) = narrowAll<T>(sum);
  });
}

template <typename T, typename Form> __device__ void averageBackward(const PoolArguments &a) {
  using I = typename Form::Index;
  using Elements = Pack<T, Form::width>;
  T *wide = static_cast<T *>(a.wide);
  const T *narrow = static_cast<const T *>(a.narrow);
  forItems<Form>(a, a.ih, a.iw, a.wideStrides[1] == 1, [&](I n, I c, I h, I w) {
    float sum[Form::width] = {};
    forWindows<I>(a, h, w, [&](I oh, I ow, I, I) {
      const Elements from = *reinterpret_cast<const Elements *>(narrow + placeIn<I>(a.narrowStrides, n, c, oh, ow));
      const float size = windowSize<I>(a, oh, ow);
      for (int i = 0; i < Form::width; ++i)
        sum[i] += widen(from.at[i]) / size;
    });
    *reinterpret_cast<Elements *>(wide + placeIn<I>(a.wideStrides, n, c, h, w)) = narrowAll<T>(sum);
  });
}

__device__ inline float tanhOfGelu(float x) { return tanhf(0.7978845608f * (x + 0.044715f * x * x * x)); }

__device__ inline float geluSlope(float x) {
  const float t = tanhOfGelu(x);
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

/// `aux`: null, or the auxiliary element of x.
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

template <typename A> __device__ void sumSlices(const RowSumsArguments &a) {
  const A *from = static_cast<const A *>(a.a);
  for (int64_t item = firstItem(); item < a.slices * a.rows; item += allThreads()) {
    const int64_t row = item % a.rows, slice = item / a.rows;
    float sum = 0;
    for (int64_t i = a.length * slice / a.slices; i < a.length * (slice + 1) / a.slices; ++i)
      sum += widen(from[row * a.rowStride + i * a.columnStride]);
    a.partial[item] = sum;
  }
}

template <typename C> __device__ void joinSlices(const RowSumsArguments &a) {
  for (int64_t row = firstItem(); row < a.rows; row += allThreads()) {
    float sum = 0;
    for (int64_t slice = 0; slice < a.slices; ++slice)
      sum += a.partial[slice * a.rows + row];
    static_cast<C *>(a.sums)[row] = narrowTo<C>(sum);
  }
}

} // namespace

#ifndef CLEAVE_KERNEL // tests compile them as host functions
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
CLEAVE_KERNEL(cleave_random_bool, RandomArguments, randomUniform<bool>)

#define CLEAVE_POOL_FORMS(name, fn, t, T)                                                                              \
  CLEAVE_KERNEL(cleave_##name##_##t, PoolArguments, (fn<T, PoolForm<int64_t, 1, int32_t>>))                             \
  CLEAVE_KERNEL(cleave_##name##_small_##t, PoolArguments, (fn<T, PoolForm<int32_t, 1, uint8_t>>))                       \
  CLEAVE_KERNEL(cleave_##name##_packed_##t, PoolArguments, (fn<T, PoolForm<int32_t, 16 / sizeof(T), uint8_t>>))
#define CLEAVE_POOL(name, fn)                                                                                          \
  CLEAVE_POOL_FORMS(name, fn, f32, float)                                                                              \
  CLEAVE_POOL_FORMS(name, fn, f16, __half)                                                                             \
  CLEAVE_POOL_FORMS(name, fn, bf16, __nv_bfloat16)
CLEAVE_POOL(max_forward, maxForward)
CLEAVE_POOL(max_backward, maxBackward)
CLEAVE_POOL(average_forward, averageForward)
CLEAVE_POOL(average_backward, averageBackward)

#define CLEAVE_EPILOGUE(c, C)                                                                                          \
  CLEAVE_KERNEL(cleave_epilogue_##c##_f32, EpilogueArguments, (applyEpilogue<C, float>))                               \
  CLEAVE_KERNEL(cleave_epilogue_##c##_f16, EpilogueArguments, (applyEpilogue<C, __half>))                              \
  CLEAVE_KERNEL(cleave_epilogue_##c##_bf16, EpilogueArguments, (applyEpilogue<C, __nv_bfloat16>))
CLEAVE_EPILOGUE(f32, float)
CLEAVE_EPILOGUE(f16, __half)
CLEAVE_EPILOGUE(bf16, __nv_bfloat16)

CLEAVE_KERNEL(cleave_row_sums_f32, RowSumsArguments, sumSlices<float>)
CLEAVE_KERNEL(cleave_row_sums_f16, RowSumsArguments, sumSlices<__half>)
CLEAVE_KERNEL(cleave_row_sums_bf16, RowSumsArguments, sumSlices<__nv_bfloat16>)
CLEAVE_KERNEL(cleave_row_sums_end_f32, RowSumsArguments, joinSlices<float>)
CLEAVE_KERNEL(cleave_row_sums_end_f16, RowSumsArguments, joinSlices<__half>)
CLEAVE_KERNEL(cleave_row_sums_end_bf16, RowSumsArguments, joinSlices<__nv_bfloat16>)
}
