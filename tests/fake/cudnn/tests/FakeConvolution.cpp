// Convolutions through the runtime's cuDNN and the fake library, against plain loops: every direction, type and layout.
#include "runtime/base/Error.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/cuda/library/CudnnShapes.h"
#include "tests/fake/cudnn/tests/Numbers.h"
#include "tests/fake/cudnn/tests/Place.h"
#include "tests/support/CudnnDevices.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;
using Catch::Matchers::Contains;
using plan::ConvKind;

namespace {

CudnnOptions hopper() {
  CudnnOptions options;
  options.smVersion = 90;
  options.workspaceLimit = 1 << 20;
  return options;
}

/// The filled operands of a convolution, and the expected result.
struct Problem {
  explicit Problem(const plan::ConvT &c)
      : c(c), written(c), shapes(convShapes(*written)), src(c.dtype, shapes.src.sizes, shapes.src.strides),
        weights(c.dtype, shapes.weights.sizes, shapes.weights.strides),
        dst(c.dtype, shapes.dst.sizes, shapes.dst.strides), bias(c.dtype, shapes.bias.sizes, shapes.bias.strides) {
    fillWhole(src, 1), fillWhole(weights, 2), fillWhole(dst, 3), fillWhole(bias, 4);
  }

  Buffer &result() { return c.kind == ConvKind::Forward ? dst : c.kind == ConvKind::BackwardData ? src : weights; }

  std::vector<double> expected() {
    std::vector<double> sums(static_cast<size_t>(result().count()));
    const int64_t perGroup = c.ic / c.groups;
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t o = 0; o < c.oc; ++o)
        for (int64_t a = 0; a < c.oh; ++a)
          for (int64_t b = 0; b < c.ow; ++b)
            for (int64_t i = 0; i < perGroup; ++i)
              for (int64_t h = 0; h < c.kh; ++h)
                for (int64_t w = 0; w < c.kw; ++w) {
                  const int64_t y = a * c.stride_h + h * c.dilation_h - c.pad_top,
                                x = b * c.stride_w + w * c.dilation_w - c.pad_left;
                  const int64_t channel = o / (c.oc / c.groups) * perGroup + i;
                  if (y < 0 || y >= c.ih || x < 0 || x >= c.iw)
                    continue;
                  if (c.kind == ConvKind::Forward)
                    sums[static_cast<size_t>(((n * c.oc + o) * c.oh + a) * c.ow + b)] +=
                        src(n, channel, y, x) * weights(o, i, h, w);
                  else if (c.kind == ConvKind::BackwardData)
                    sums[static_cast<size_t>(((n * c.ic + channel) * c.ih + y) * c.iw + x)] +=
                        dst(n, o, a, b) * weights(o, i, h, w);
                  else
                    sums[static_cast<size_t>(((o * perGroup + i) * c.kh + h) * c.kw + w)] +=
                        dst(n, o, a, b) * src(n, channel, y, x);
                }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (c.bias >= 0)
        sums[i] += bias.get(static_cast<int64_t>(i) / (c.oh * c.ow) % c.oc);
      if (c.accumulate)
        sums[i] += result().get(static_cast<int64_t>(i));
      sums[i] = stored(c.dtype, sums[i]);
    }
    return sums;
  }

  std::vector<void *> pointers() {
    if (c.kind == ConvKind::BackwardData)
      return {dst.data(), weights.data(), src.data()};
    if (c.kind == ConvKind::BackwardWeights)
      return {src.data(), dst.data(), weights.data()};
    return c.bias >= 0 ? std::vector<void *>{src.data(), weights.data(), bias.data(), dst.data()}
                       : std::vector<void *>{src.data(), weights.data(), dst.data()};
  }

  plan::ConvT c;
  Written<plan::Conv> written;
  ConvShapes shapes;
  Buffer src, weights, dst, bias;
};

void check(const plan::ConvT &c, const CudnnOptions &options = hopper()) {
  Problem problem(c);
  INFO(describe(*problem.written));
  const auto handle = Cudnn::open().handle(place().stream());
  const auto graph = Cudnn::open().convolution(handle.get(), *problem.written, options);
  const std::vector<double> expected = problem.expected();
  graph->run(*handle, problem.pointers(), place().memory(graph->workspaceBytes()));
  place().finish();
  CHECK(std::any_of(expected.begin(), expected.end(), [](double x) { return x != 0; }));
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    wrong += problem.result().get(static_cast<int64_t>(i)) != expected[i];
  CHECK(wrong == 0);
}

} // namespace

TEST_CASE("fake cudnn: it is the library that is open") {
  CHECK(Cudnn::open().version() / 10000 == 9);
  const auto handle = Cudnn::open().handle(place().stream());
  const auto c = convFields(ConvKind::Forward, plan::DType::F32, false, 1, 2, 4, 2, 3, 1, 1);
  const auto graph = Cudnn::open().convolution(handle.get(), *Written<plan::Conv>(c), hopper());
  REQUIRE(graph->candidates() == std::vector<std::string>{"eng0", "eng1"});
}

TEST_CASE("fake cudnn: convolutions in all directions, types and layouts") {
  for (ConvKind kind : {ConvKind::Forward, ConvKind::BackwardData, ConvKind::BackwardWeights})
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
      for (bool nhwc : {false, true}) {
        const plan::ConvT plain = convFields(kind, dtype, nhwc, 2, 8, 7, 6, 3, 1, 1);
        const auto with = [&](auto change) {
          plan::ConvT c = plain;
          change(c);
          check(c);
        };
        with([](auto &) {});
        with([](auto &c) { c.accumulate = true; });
        with([](auto &c) { c.groups = 2; });
        with([](auto &c) { c.dilation_h = c.dilation_w = 2, c.oh = c.ow = 5; });
        with([](auto &c) { c.stride_h = 2, c.oh = 4; });
        with([](auto &c) { c.stride_h = c.stride_w = 2, c.oh = c.ow = 3, c.pad_top = c.pad_left = 0; });
        with([](auto &c) { c.kh = 1, c.pad_top = c.pad_bottom = 0, c.stride_w = 3, c.ow = 3; });
        if (kind == ConvKind::Forward)
          with([](auto &c) { c.bias = 0; });
      }
}

TEST_CASE("fake cudnn: engines") {
  const auto handle = Cudnn::open().handle(place().stream());
  const auto c = convFields(ConvKind::Forward, plan::DType::F32, true, 2, 4, 5, 4, 3, 1, 1);
  const Written<plan::Conv> written(c);
  const auto graph = Cudnn::open().convolution(handle.get(), *written, hopper());
  CHECK(graph->choice() == "eng0");
  CHECK(graph->workspaceBytes() == 4096);
  graph->choose("eng1");
  CHECK(graph->workspaceBytes() == 0);
  CHECK_THROWS_WITH(graph->choose("eng2"), Contains("there is no engine eng2 for it") && Contains("found eng0, eng1"));

  CudnnOptions options = hopper();
  options.workspaceLimit = 100;
  CHECK(Cudnn::open().convolution(handle.get(), *written, options)->candidates() == std::vector<std::string>{"eng1"});
  options = hopper();
  options.tf32 = true;
  CHECK(Cudnn::open().convolution(handle.get(), *written, options)->choice() == "eng3");
  options.deterministic = false;
  CHECK(Cudnn::open().convolution(handle.get(), *written, options)->choice() == "eng2");
  options.choice = "eng1";
  CHECK(Cudnn::open().convolution(handle.get(), *written, options)->choice() == "eng1");
  check(c, options);
}

TEST_CASE("fake cudnn: a captured convolution runs as often as its graph") {
  plan::ConvT c = convFields(ConvKind::BackwardWeights, plan::DType::F32, true, 2, 4, 5, 4, 3, 1, 1);
  c.accumulate = true;
  Problem problem(c);
  const auto handle = Cudnn::open().handle(place().stream());
  const auto graph = Cudnn::open().convolution(handle.get(), *problem.written, hopper());
  const std::vector<double> once = problem.expected();
  std::vector<double> before;
  for (int64_t i = 0; i < problem.weights.count(); ++i)
    before.push_back(problem.weights.get(i));
  void *workspace = place().memory(graph->workspaceBytes());
  place().replay(3, [&] { graph->run(*handle, problem.pointers(), workspace); });
  for (size_t i = 0; i < once.size(); ++i)
    CHECK(problem.weights.get(static_cast<int64_t>(i)) == before[i] + 3 * (once[i] - before[i]));
}

TEST_CASE("fake cudnn: mistakes in running") {
  Problem problem(convFields(ConvKind::Forward, plan::DType::BF16, true, 1, 8, 4, 8, 1, 1, 0));
  const auto handle = Cudnn::open().handle(place().stream());
  const auto graph = Cudnn::open().convolution(handle.get(), *problem.written, hopper());
  std::vector<void *> pointers = problem.pointers();
  CHECK_THROWS_WITH(graph->run(*handle, pointers, nullptr),
                    Contains("cudnn: forward convolution, bf16 nhwc") && Contains("the engine's workspace is missing"));
  graph->choose("eng1");
  pointers[0] = static_cast<std::byte *>(pointers[0]) + 2;
  CHECK_THROWS_WITH(graph->run(*handle, pointers, nullptr), Contains("not 16-byte aligned"));
  pointers.pop_back();
  CHECK_THROWS_WITH(graph->run(*handle, pointers, nullptr), Contains("2 addresses for 3 tensors"));
}
