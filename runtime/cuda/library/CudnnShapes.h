// What cuDNN's descriptors need of a step, and the rules that a step must keep before cuDNN sees it. No CUDA here.
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

/// A tensor of a convolution: sizes [n, c, h, w] (weights [oc, ic/groups, kh, kw]) and the strides that say how it
/// lies.
struct TensorShape {
  std::vector<int64_t> sizes, strides;
};

struct ConvShapes {
  TensorShape src, weights, dst, bias;
  std::vector<int64_t> padBegin, padEnd, stride, dilation; ///< each [height, width]
};

/// Throws an environment error where the step's sizes do not fit together or its type is none of f32, f16, bf16. The
/// padding at the end is as much as that at the beginning wherever this leaves the result's size alone, since few
/// engines know asymmetric padding.
ConvShapes convShapes(const plan::Conv &op);
/// Throws an environment error where the step's sizes, strides or type are none that attention has.
void checkAttention(const plan::Attention &op);

/// "forward convolution, bf16 nhwc, 8x64x56x56 by 64x64x3x3, stride 1x1, padding 1,1,1,1"
std::string describe(const plan::Conv &op);
/// "attention backward, bf16, batch 8, heads 12, 1024x1024, width 64, causal"
std::string describe(const plan::Attention &op);

} // namespace cleave::cuda
