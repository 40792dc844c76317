// Descriptions of three GPUs in cuDNN's format for devices (JSON), written by hand from the data sheets, to compile
// plans without a GPU; and functions that build steps for cuDNN.
#pragma once
#include "runtime/plan/plan_generated.h"

#include <string>

namespace cleave::test {

/// The description of an A100 (smVersion 80), H100 (90) or B200 (100).
inline std::string cudnnDevice(int smVersion) {
  struct Sizes {
    const char *name;
    int64_t processors, clock, memoryClock, cache, sharedOfBlock, sharedOfProcessor;
  };
  const Sizes s = smVersion == 80   ? Sizes{"NVIDIA A100-SXM4-80GB", 108, 1410000, 1593000, 41943040, 166912, 167936}
                  : smVersion == 90 ? Sizes{"NVIDIA H100 80GB HBM3", 132, 1980000, 2619000, 52428800, 232448, 233472}
                                    : Sizes{"NVIDIA B200", 148, 1965000, 3996000, 132644864, 232448, 233472};
  const auto field = [](const char *key, int64_t value) {
    return std::string(",\"") + key + "\":" + std::to_string(value);
  };
  return std::string("{\"deviceName\":\"") + s.name + "\"" + field("cudaDeviceId", 0) +
         field("deviceVer", smVersion * 10) + field("driverVer", 13000) + field("totalGlobalMem", 85028896768) +
         field("multiProcessorCount", s.processors) +
         ",\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]" + field("regsPerBlock", 65536) +
         field("smClockRateKHz", s.clock) + field("memClockRateKHz", s.memoryClock) + field("l2CacheSize", s.cache) +
         field("warpSize", 32) + field("maxSharedMemoryPerBlock", 49152) +
         field("maxSharedMemoryPerBlockOptin", s.sharedOfBlock) + field("reservedSharedMemoryPerBlock", 1024) +
         field("maxSharedMemoryPerSM", s.sharedOfProcessor) + field("maxRegistersPerSM", 65536) +
         field("pciDeviceId", 0) + field("maxCtasPerSM", 32) + field("maxThreadsPerBlock", 1024) +
         field("maxThreadsPerSM", 2048) + field("isTccDriver", 0) + field("supportCoopLaunch", 1) + "}";
}

/// One table of the plan format, packed into its own buffer.
template <typename Table> class Written {
public:
  explicit Written(const typename Table::NativeTableType &fields) { builder.Finish(Table::Pack(builder, &fields)); }
  const Table &operator*() const { return *flatbuffers::GetRoot<Table>(builder.GetBufferPointer()); }

private:
  flatbuffers::FlatBufferBuilder builder;
};

/// A square convolution: `size` is the input's height and width; the output's size is derived from the arguments.
inline plan::ConvT convFields(plan::ConvKind kind, plan::DType dtype, bool nhwc, int64_t n, int64_t ic, int64_t size,
                              int64_t oc, int64_t kernel, int64_t stride, int64_t pad) {
  plan::ConvT c;
  c.kind = kind;
  c.dtype = dtype;
  c.nhwc = nhwc;
  c.n = n, c.ic = ic, c.oc = oc;
  c.ih = c.iw = size;
  c.oh = c.ow = (size + 2 * pad - kernel) / stride + 1;
  c.kh = c.kw = kernel;
  c.stride_h = c.stride_w = stride;
  c.pad_top = c.pad_left = c.pad_bottom = c.pad_right = pad;
  c.dilation_h = c.dilation_w = c.groups = 1;
  return c;
}

/// Attention as in a GPT. If rows == keys, q, k and v are views of one [batch, rows, 3, heads, width] tensor, and so
/// are their gradients. All other tensors are [batch, rows, heads, width], with `keys` instead of `rows` for k and v.
inline plan::AttentionT attentionFields(plan::AttentionKind kind, plan::DType dtype, int64_t batch, int64_t heads,
                                        int64_t rows, int64_t keys, int64_t width, bool causal) {
  plan::AttentionT a;
  a.kind = kind;
  a.dtype = dtype;
  a.batch = batch, a.heads = heads, a.rows = rows, a.keys = keys, a.width = width;
  a.causal = causal;
  a.scale = 0.125;
  a.lse = 0;
  const int64_t inner = heads * width, parts = rows == keys ? 3 : 1;
  const auto view = [&](int64_t count, int64_t fused, int64_t part) {
    auto v = std::make_unique<plan::ViewT>();
    v->strides = {count * inner * fused, width, inner * fused, 1};
    v->offset = static_cast<uint64_t>(part * inner * 2);
    return v;
  };
  a.q = view(rows, parts, 0), a.k = view(keys, parts, parts == 3 ? 1 : 0), a.v = view(keys, parts, parts == 3 ? 2 : 0);
  a.out = view(rows, 1, 0);
  if (kind == plan::AttentionKind::Backward) {
    a.dout = view(rows, 1, 0);
    a.dq = view(rows, parts, 0), a.dk = view(keys, parts, parts == 3 ? 1 : 0);
    a.dv = view(keys, parts, parts == 3 ? 2 : 0);
  }
  return a;
}

} // namespace cleave::test
