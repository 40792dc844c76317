// Sizes, strides and padding of convolutions and attention, and their descriptions for display.
#include "runtime/cuda/library/CudnnShapes.h"

#include "runtime/base/Error.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace cleave::cuda {

namespace {

TensorShape tensor(std::vector<int64_t> sizes, bool channelsLast) {
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  std::vector<int64_t> strides =
      channelsLast ? std::vector<int64_t>{h * w * c, 1, w * c, c} : std::vector<int64_t>{c * h * w, h * w, w, 1};
  return {std::move(sizes), std::move(strides)};
}

void require(bool good, const plan::Conv &op, const std::string &rule) {
  if (!good)
    throw environmentError(fmt::format("cudnn: {}: {}", describe(op), rule));
}

void require(bool good, const plan::Attention &op, const std::string &rule) {
  if (!good)
    throw environmentError(fmt::format("cudnn: {}: {}", describe(op), rule));
}

/// One dimension of the windows: input, output, kernel, stride, dilation, and padding before and after.
struct Windows {
  const char *name;
  int64_t in, out, kernel, stride, dilation, begin, end;
};

/// The end padding that gives `out` windows.
int64_t padEnd(const plan::Conv &op, const Windows &w) {
  require(w.stride > 0 && w.dilation > 0, op,
          fmt::format("stride and dilation must be positive, found {} and {} ({})", w.stride, w.dilation, w.name));
  require(w.begin >= 0 && w.end >= 0, op, fmt::format("padding must not be negative ({})", w.name));
  const int64_t span = (w.kernel - 1) * w.dilation + 1, padded = w.in + w.begin + w.end;
  const int64_t windows = padded < span ? 0 : (padded - span) / w.stride + 1;
  require(windows == w.out, op,
          fmt::format("the output's {} must be {} (input {}, padding {} and {}), found {}", w.name, windows, w.in,
                      w.begin, w.end, w.out));
  // The last window ends here; up to `stride` - 1 more elements change nothing.
  const int64_t exact = (w.out - 1) * w.stride + span - w.in - w.begin;
  return w.begin >= exact && w.begin < exact + w.stride ? w.begin : w.end;
}

bool halfType(plan::DType type) { return type == plan::DType::BF16 || type == plan::DType::F16; }

void checkView(const plan::Attention &op, const plan::View *view, const char *name) {
  require(view && view->strides() && view->strides()->size() == 4, op,
          fmt::format("{} must have strides for batch, heads, rows and width", name));
  const auto &strides = *view->strides();
  require(strides[3] == 1, op, fmt::format("the last stride of {} must be 1, found {}", name, strides[3]));
  for (uint32_t i = 0; i < 3; ++i)
    require(strides[i] >= 0 && strides[i] % 8 == 0, op,
            fmt::format("strides of {} must be multiples of 16 bytes, found {} elements", name, strides[i]));
  require(view->offset() % 16 == 0, op,
          fmt::format("{} must begin at a multiple of 16 bytes, found {}", name, view->offset()));
}

} // namespace

ConvShapes convShapes(const plan::Conv &op) {
  require(halfType(op.dtype()) || op.dtype() == plan::DType::F32, op, "the type must be f32, f16 or bf16");
  require(std::min({op.n(), op.ic(), op.ih(), op.iw(), op.oc(), op.oh(), op.ow(), op.kh(), op.kw()}) > 0, op,
          "sizes must be positive");
  require(op.groups() > 0 && op.ic() % op.groups() == 0 && op.oc() % op.groups() == 0, op,
          fmt::format("groups must divide the channels, found {}", op.groups()));
  const bool bias = op.bias() >= 0;
  require(!bias || op.kind() == plan::ConvKind::Forward, op, "only a forward convolution has a bias");
  require(!bias || !op.accumulate(), op, "a convolution that accumulates has no bias");
  const bool plain = op.epilogue() == plan::Epilogue::None;
  require(plain || (op.epilogue() == plan::Epilogue::Relu && bias), op, "ReLU alone may follow, behind a bias");
  ConvShapes s;
  s.src = tensor({op.n(), op.ic(), op.ih(), op.iw()}, op.nhwc());
  s.weights = tensor({op.oc(), op.ic() / op.groups(), op.kh(), op.kw()}, op.nhwc());
  s.dst = tensor({op.n(), op.oc(), op.oh(), op.ow()}, op.nhwc());
  s.bias = tensor({1, op.oc(), 1, 1}, op.nhwc());
  s.stride = {op.stride_h(), op.stride_w()};
  s.dilation = {op.dilation_h(), op.dilation_w()};
  s.padBegin = {op.pad_top(), op.pad_left()};
  s.padEnd = {
      padEnd(op, {"height", op.ih(), op.oh(), op.kh(), op.stride_h(), op.dilation_h(), op.pad_top(), op.pad_bottom()}),
      padEnd(op, {"width", op.iw(), op.ow(), op.kw(), op.stride_w(), op.dilation_w(), op.pad_left(), op.pad_right()})};
  return s;
}

void checkAttention(const plan::Attention &op) {
  require(halfType(op.dtype()), op, "the type must be f16 or bf16");
  require(std::min({op.batch(), op.heads(), op.rows(), op.keys(), op.width()}) > 0, op, "sizes must be positive");
  require(!op.bias() && !op.keep(), op, "there must be no bias and no dropout");
  require(op.width() % 8 == 0, op, "the width must be a multiple of 8");
  require(!op.causal() || op.rows() <= op.keys(), op, "with a causal mask there must be no more rows than keys");
  checkView(op, op.q(), "q");
  checkView(op, op.k(), "k");
  checkView(op, op.v(), "v");
  checkView(op, op.out(), "out");
  if (op.kind() == plan::AttentionKind::Forward)
    return;
  require(op.lse() >= 0, op, "backward reads what forward wrote to lse, found none");
  checkView(op, op.dout(), "dout");
  checkView(op, op.dq(), "dq");
  checkView(op, op.dk(), "dk");
  checkView(op, op.dv(), "dv");
}

std::string describe(const plan::Conv &op) {
  static constexpr const char *kinds[] = {"forward convolution", "convolution's gradient of data",
                                          "convolution's gradient of weights"};
  const char *relu = op.epilogue() == plan::Epilogue::Relu ? " and ReLU" : "";
  std::string text =
      fmt::format("{}{}{}, {} {}, {}x{}x{}x{} by {}x{}x{}x{}, stride {}x{}, padding {},{},{},{}",
                  kinds[static_cast<int>(op.kind())],
                  op.bias() >= 0    ? " with bias"
                  : op.accumulate() ? " that accumulates"
                                    : "",
                  relu, dtypeName(op.dtype()), op.nhwc() ? "nhwc" : "nchw", op.n(), op.ic(), op.ih(), op.iw(), op.oc(),
                  op.groups() > 0 ? op.ic() / op.groups() : 0, op.kh(), op.kw(), op.stride_h(), op.stride_w(),
                  op.pad_top(), op.pad_left(), op.pad_bottom(), op.pad_right());
  if (op.dilation_h() != 1 || op.dilation_w() != 1)
    text += fmt::format(", dilation {}x{}", op.dilation_h(), op.dilation_w());
  if (op.groups() != 1)
    text += fmt::format(", groups {}", op.groups());
  return text;
}

std::string describe(const plan::Attention &op) {
  return fmt::format("attention {}, {}, batch {}, heads {}, {}x{}, width {}{}",
                     op.kind() == plan::AttentionKind::Forward ? "forward" : "backward", dtypeName(op.dtype()),
                     op.batch(), op.heads(), op.rows(), op.keys(), op.width(), op.causal() ? ", causal" : "");
}

} // namespace cleave::cuda
