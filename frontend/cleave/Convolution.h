// 1-D and transposed convolutions, 1-D and adaptive pooling, and resizing of images.
#pragma once
#include "cleave/Functional.h"

namespace cleave {

struct Conv1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
/// x [n, c, l], weight [o, c / groups, k], bias [o] -> [n, o, (l + 2 padding - dilation (k - 1) - 1) / stride + 1].
/// C1: ranks are 3. C2 to C6 as conv2d.
Tensor conv1d(Tensor x, Tensor weight, Tensor bias = {}, Conv1dOptions options = {}, Where where = Where::current());

struct MaxPool1dOptions {
  int64_t stride = 0, padding = 0, dilation = 1; ///< stride 0: the kernel's size
  bool ceilMode = false;
};
struct AvgPool1dOptions {
  int64_t stride = 0, padding = 0; ///< stride 0: the kernel's size
  bool ceilMode = false, countIncludePad = true;
};
/// Maximum or mean of each window of x [n, c, l], as maxPool2d and avgPool2d. C1: the rank is 3. C2 to C4 as maxPool2d.
Tensor maxPool1d(Tensor x, int64_t kernel, MaxPool1dOptions options = {}, Where where = Where::current());
Tensor avgPool1d(Tensor x, int64_t kernel, AvgPool1dOptions options = {}, Where where = Where::current());

struct ConvTransposeOptions {
  Pair stride = 1, padding = 0, outputPadding = 0, dilation = 1;
  int64_t groups = 1;
};
/// Transposed convolution (the input gradient of conv2d as a forward op): x [n, c, h, w], weight [c, o / groups, kh,
/// kw], bias [o] -> [n, o, H, W], H = (h - 1) stride - 2 padding + dilation (kh - 1) + outputPadding + 1. C1: ranks are
/// 4. C2: input and weight have the same number of input channels. C3: groups divides it. C4: the output is not empty.
/// C5: stride and dilation are positive, padding is not negative. C6: the bias is [o]. C7: 0 <= outputPadding < stride.
/// C8: element types agree.
Tensor convTranspose2d(Tensor x, Tensor weight, Tensor bias = {}, ConvTransposeOptions options = {},
                       Where where = Where::current());

enum class Interpolation : uint8_t { Nearest, Bilinear };
struct InterpolateOptions {
  Pair size = 0;    ///< size of the result; 0: use `scale`
  double scale = 0; ///< the result's size is the input's size times `scale`, rounded down
  Interpolation mode = Interpolation::Nearest;
  bool alignCorners = false; ///< bilinear: align the centres of the corner pixels, not the edges of the images
};
/// Resizes x [n, c, h, w]; sample positions as in PyTorch. C1: the rank is 4. C2: exactly one of size and scale is
/// given, and it is positive. C3: alignCorners requires Bilinear. C4: x has a float type.
Tensor interpolate(Tensor x, InterpolateOptions options, Where where = Where::current());

/// x [n, c, h, w] -> [n, c, H, W] with H = size.h and W = size.w: mean or maximum of windows. Row i of the result
/// covers the rows [floor(i h / H), ceil((i + 1) h / H)), and columns likewise. C1: the rank is 4. C2: sizes are
/// positive. C3: x has a float type.
Tensor adaptiveAvgPool2d(Tensor x, Pair size, Where where = Where::current());
Tensor adaptiveMaxPool2d(Tensor x, Pair size, Where where = Where::current());

} // namespace cleave
