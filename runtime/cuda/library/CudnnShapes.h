// A step's data for cuDNN's descriptors, and the rules that are checked first. No CUDA here.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::plan {
struct Attention;
struct Conv;
struct View;
} // namespace cleave::plan

namespace cleave::cuda {

/// A tensor of a convolution: sizes [n, c, h, w] (weights [oc, ic/groups, kh, kw]) and strides.
struct TensorShape {
  std::vector<int64_t> sizes, strides;
};

struct ConvShapes {
  TensorShape src, weights, dst, bias;
  std::vector<int64_t> padBegin, padEnd, stride, dilation; ///< each [height, width]
};

/// Throws an environment error if the step's sizes are inconsistent or its type is not f32, f16 or bf16. The end
/// padding is set equal to the begin padding if that does not change the result's size, because few engines support
/// asymmetric padding.
ConvShapes convShapes(const plan::Conv &op);
/// Throws an environment error if cuDNN attention does not support the step's sizes, strides or type.
void checkAttention(const plan::Attention &op);

/// "forward convolution, bf16 nhwc, 8x64x56x56 by 64x64x3x3, stride 1x1, padding 1,1,1,1"
std::string describe(const plan::Conv &op);
/// "attention backward, bf16, batch 8, heads 12, 1024x1024, width 64, causal"
std::string describe(const plan::Attention &op);

} // namespace cleave::cuda
