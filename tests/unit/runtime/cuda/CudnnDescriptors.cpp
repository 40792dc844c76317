// The runtime's use of cuDNN without a GPU: rejected shapes, graphs that cuDNN accepts, and engines that it lists and
// builds for described devices. Without cuDNN or its headers these tests only report this, and pass.
#include "runtime/base/Error.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/cuda/library/CudnnShapes.h"
#include "tests/conformance/Convolutions.h"
#include "tests/support/CudnnDevices.h"

#include <catch2/catch.hpp>

#include <cstdio>

using namespace cleave;
using namespace cleave::cuda;
using namespace cleave::test;
using Catch::Matchers::Contains;
using plan::AttentionKind;
using plan::ConvKind;

namespace {

Cudnn *library() {
  try {
    return &Cudnn::open();
  } catch (const Error &e) {
    static const int said = std::printf("skipped: %s\n", e.what());
    static_cast<void>(said);
    return nullptr;
  }
}

CudnnOptions optionsFor(int smVersion) {
  CudnnOptions options;
  options.smVersion = smVersion;
  options.workspaceLimit = size_t{256} << 20;
  options.deviceJson = cudnnDevice(smVersion);
  return options;
}

std::unique_ptr<CudnnGraph> make(Cudnn &cudnn, const plan::ConvT &fields, const CudnnOptions &options) {
  return cudnn.convolution(nullptr, *Written<plan::Conv>(fields), options);
}

std::unique_ptr<CudnnGraph> make(Cudnn &cudnn, const plan::AttentionT &fields, const CudnnOptions &options) {
  return cudnn.attention(nullptr, *Written<plan::Attention>(fields), options);
}

struct Shape {
  int64_t n, ic, size, oc, kernel, stride, pad;
};

/// Convolutions of the samples: ResNet-18 on 224 and on 32 pixels, the convnet on 28.
constexpr Shape samples[] = {{32, 3, 224, 64, 7, 2, 3},  {32, 64, 56, 64, 3, 1, 1},   {32, 64, 56, 128, 3, 2, 1},
                             {32, 64, 56, 128, 1, 2, 0}, {32, 256, 14, 512, 3, 2, 1}, {32, 512, 7, 512, 3, 1, 1},
                             {8, 3, 32, 64, 3, 1, 1},    {64, 1, 28, 32, 3, 1, 1},    {64, 32, 14, 64, 5, 1, 2}};

plan::ConvT fields(const Shape &s, ConvKind kind, plan::DType dtype, bool nhwc) {
  return convFields(kind, dtype, nhwc, s.n, s.ic, s.size, s.oc, s.kernel, s.stride, s.pad);
}

} // namespace

TEST_CASE("cudnn: convolutions that do not fit together are refused") {
  const auto good = convFields(ConvKind::Forward, plan::DType::BF16, true, 8, 64, 56, 64, 3, 1, 1);
  const auto refused = [&](auto change, const char *text) {
    plan::ConvT bad = good;
    change(bad);
    CHECK_THROWS_WITH(convShapes(*Written<plan::Conv>(bad)), Contains(text));
  };
  refused([](auto &c) { c.oh = 57; }, "the output's height must be 56 (input 56, padding 1 and 1), found 57");
  refused([](auto &c) { c.pad_left = c.pad_right = 0; }, "the output's width must be 54");
  refused([](auto &c) { c.n = 0; }, "sizes must be positive");
  refused([](auto &c) { c.groups = 3; }, "groups must divide the channels, found 3");
  refused([](auto &c) { c.stride_h = 0; }, "must be positive");
  refused([](auto &c) { c.pad_top = -1; }, "padding must not be negative");
  refused([](auto &c) { c.dtype = plan::DType::I32; }, "the type must be f32, f16 or bf16");
  refused([](auto &c) { c.bias = 1, c.accumulate = true; }, "has no bias");
  refused([](auto &c) { c.bias = 1, c.kind = ConvKind::BackwardData; }, "only a forward convolution has a bias");
  refused([](auto &c) { c.epilogue = plan::Epilogue::Gelu; }, "ReLU alone may follow");
  refused([](auto &c) { c.epilogue = plan::Epilogue::Relu; }, "behind a bias");
  refused([](auto &c) { c.kh = 99; }, "must be 0");
}

TEST_CASE("cudnn: layouts and padding of convolutions") {
  auto c = convFields(ConvKind::Forward, plan::DType::F32, true, 2, 8, 56, 16, 3, 2, 1);
  c.groups = 2;
  const ConvShapes nhwc = convShapes(*Written<plan::Conv>(c));
  CHECK(nhwc.src.sizes == std::vector<int64_t>{2, 8, 56, 56});
  CHECK(nhwc.src.strides == std::vector<int64_t>{8 * 56 * 56, 1, 8 * 56, 8});
  CHECK(nhwc.weights.sizes == std::vector<int64_t>{16, 4, 3, 3});
  CHECK(nhwc.weights.strides == std::vector<int64_t>{36, 1, 12, 4});
  CHECK(nhwc.dst.sizes == std::vector<int64_t>{2, 16, 28, 28});
  c.nhwc = false;
  const ConvShapes nchw = convShapes(*Written<plan::Conv>(c));
  CHECK(nchw.src.strides == std::vector<int64_t>{8 * 56 * 56, 56 * 56, 56, 1});
  CHECK(nchw.weights.strides == std::vector<int64_t>{36, 9, 3, 1});
  // Padding behind the last window has no effect, so the padding is made symmetric where possible.
  c.pad_bottom = 0, c.pad_right = 0;
  CHECK(convShapes(*Written<plan::Conv>(c)).padEnd == std::vector<int64_t>{1, 1});
  c.pad_top = 0, c.pad_left = 0, c.pad_bottom = 1, c.pad_right = 1; // as "same" padding requires
  CHECK(convShapes(*Written<plan::Conv>(c)).padEnd == std::vector<int64_t>{1, 1});
  CHECK(convShapes(*Written<plan::Conv>(c)).padBegin == std::vector<int64_t>{0, 0});
}

TEST_CASE("cudnn: attention that does not fit together is refused") {
  const auto refused = [](AttentionKind kind, auto change, const char *text) {
    auto bad = attentionFields(kind, plan::DType::BF16, 2, 4, 64, 64, 32, true);
    change(bad);
    CHECK_THROWS_WITH(checkAttention(*Written<plan::Attention>(bad)), Contains(text));
  };
  refused(
      AttentionKind::Forward, [](auto &a) { a.dtype = plan::DType::F32; }, "the type must be f16 or bf16");
  refused(
      AttentionKind::Forward, [](auto &a) { a.heads = 0; }, "sizes must be positive");
  refused(
      AttentionKind::Forward, [](auto &a) { a.width = 20; }, "the width must be a multiple of 8");
  refused(
      AttentionKind::Forward, [](auto &a) { a.keys = 32; }, "no more rows than keys");
  refused(
      AttentionKind::Forward, [](auto &a) { a.k->strides[3] = 2; }, "the last stride of k must be 1, found 2");
  refused(
      AttentionKind::Forward, [](auto &a) { a.v->strides.pop_back(); }, "v must have strides");
  refused(
      AttentionKind::Forward, [](auto &a) { a.q->offset = 6; }, "q must begin at a multiple of 16 bytes, found 6");
  refused(
      AttentionKind::Forward, [](auto &a) { a.out->strides[1] = 12; }, "multiples of 16 bytes, found 12 elements");
  refused(
      AttentionKind::Backward, [](auto &a) { a.lse = -1; }, "backward reads what forward wrote to lse");
  refused(
      AttentionKind::Backward, [](auto &a) { a.dk.reset(); }, "dk must have strides");
}

TEST_CASE("cudnn: engines for the samples' convolutions on GPUs that are not here") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  for (int sm : {80, 90, 100})
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
      for (bool nhwc : {false, true})
        for (ConvKind kind : {ConvKind::Forward, ConvKind::BackwardData, ConvKind::BackwardWeights})
          for (const Shape &shape : samples) {
            const plan::ConvT c = fields(shape, kind, dtype, nhwc);
            INFO("sm_" << sm << ": " << describe(*Written<plan::Conv>(c)));
            std::unique_ptr<CudnnGraph> graph;
            REQUIRE_NOTHROW(graph = make(*cudnn, c, optionsFor(sm)));
            CHECK(!graph->candidates().empty());
            CHECK(graph->choice() == graph->candidates().front());
            CHECK(graph->workspaceBytes() <= size_t{256} << 20);
          }
}

TEST_CASE("cudnn: engines for the conformance suite's convolutions") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  const auto builds = [&](const plan::ConvT &op, plan::DType dtype, bool tf32) {
    const auto file = seal(convPlan(op, dtype));
    const plan::Program &program = *file->plan().programs()->Get(0);
    const plan::Conv &written = *program.segments()->Get(0)->steps()->Get(0)->op_as_Conv();
    for (int sm : {80, 90}) {
      CudnnOptions options = optionsFor(sm);
      options.workspaceLimit = gpuWorkspace(program); // as much as the suite reserves
      options.tf32 = tf32;
      INFO("sm_" << sm << ": " << describe(written) << (tf32 ? " in tf32" : ""));
      CHECK_NOTHROW(cudnn->convolution(nullptr, written, options));
    }
  };
  for (const plan::ConvT &each : convolutions())
    forEachDirection(each, [&](const plan::ConvT &op) { builds(op, plan::DType::F32, false); });
  for (const plan::ConvT &each : halfConvolutions())
    forEachDirection(each, [&](const plan::ConvT &op) {
      builds(op, plan::DType::F32, true);
      for (plan::DType dtype : {plan::DType::BF16, plan::DType::F16})
        builds(op, dtype, false);
    });
}

TEST_CASE("cudnn: convolutions with a bias and ReLU, that accumulate, with groups, dilation and asymmetric padding") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  for (int sm : {80, 90, 100})
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
      for (bool nhwc : {false, true})
        for (ConvKind kind : {ConvKind::Forward, ConvKind::BackwardData, ConvKind::BackwardWeights}) {
          const plan::ConvT plain = convFields(kind, dtype, nhwc, 8, 64, 28, 128, 3, 1, 1);
          const auto builds = [&](auto change) {
            plan::ConvT c = plain;
            change(c);
            INFO("sm_" << sm << ": " << describe(*Written<plan::Conv>(c)));
            CHECK_NOTHROW(make(*cudnn, c, optionsFor(sm)));
          };
          if (kind == ConvKind::Forward)
            builds([](auto &c) { c.bias = 0; });
          if (kind == ConvKind::Forward)
            builds([](auto &c) { c.bias = 0, c.epilogue = plan::Epilogue::Relu; });
          builds([](auto &c) { c.accumulate = true; });
          builds([](auto &c) { c.groups = 4; });
          builds([](auto &c) { c.dilation_h = c.dilation_w = 2, c.oh = c.ow = 26; });
          builds([](auto &c) { c.stride_h = c.stride_w = 2, c.oh = c.ow = 14, c.pad_bottom = c.pad_right = 0; });
          builds([](auto &c) { c.kh = 1, c.pad_top = c.pad_bottom = 0; });
        }
}

TEST_CASE("cudnn: an engine is chosen by name, by workspace and by how it computes") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  CudnnOptions options = optionsFor(90);
  const auto c = convFields(ConvKind::BackwardWeights, plan::DType::BF16, true, 8, 64, 56, 64, 3, 1, 1);
  const auto first = make(*cudnn, c, options);
  REQUIRE(first->candidates().size() > 2);
  const std::string second = first->candidates()[1];
  first->choose(second);
  CHECK(first->choice() == second);
  options.choice = second;
  CHECK(make(*cudnn, c, options)->choice() == second);
  CHECK_THROWS_WITH(first->choose("eng999"), Contains("there is no engine eng999 for it (cuDNN 9"));
  options.choice = "eng999"; // from a record that was made under other options
  CHECK(make(*cudnn, c, options)->choice() == first->candidates().front());

  options = optionsFor(90);
  options.workspaceLimit = 0;
  CHECK(make(*cudnn, c, options)->workspaceBytes() == 0);
  options = optionsFor(90);
  const auto sums = convFields(ConvKind::BackwardWeights, plan::DType::F32, true, 8, 64, 56, 64, 3, 1, 1);
  const auto deterministic = make(*cudnn, sums, options)->candidates();
  options.deterministic = false;
  CHECK(make(*cudnn, sums, options)->candidates().size() > deterministic.size());

  options = optionsFor(90);
  const auto f32 = convFields(ConvKind::Forward, plan::DType::F32, true, 8, 64, 56, 64, 3, 1, 1);
  const auto exact = make(*cudnn, f32, options)->candidates();
  options.tf32 = true;
  CHECK(make(*cudnn, f32, options)->candidates().size() > exact.size());
}

TEST_CASE("cudnn: what it cannot do is an error that says what and where") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  CudnnOptions options = optionsFor(80);
  const auto c = convFields(ConvKind::BackwardWeights, plan::DType::BF16, true, int64_t{1} << 40, 64, 56, 64, 3, 1, 1);
  try {
    make(*cudnn, c, options);
    FAIL("a convolution of a million million samples");
  } catch (const Error &e) {
    CHECK(e.status == Status::Environment);
    CHECK_THAT(e.what(),
               Contains("cudnn: no engine for convolution's gradient of weights, bf16 nhwc, 1099511627776x64x56x56 "
                        "by 64x64x3x3, stride 1x1, padding 1,1,1,1 on sm_80 within 268435456 bytes of workspace"));
  }
  options = optionsFor(80);
  options.deviceJson = "{}";
  CHECK_THROWS_WITH(make(*cudnn, c, options), Contains("the description of the device is refused"));
}

TEST_CASE("cudnn: graphs of attention") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  const auto valid = [&](const plan::AttentionT &a) {
    for (int sm : {80, 90, 100}) {
      CudnnOptions options = optionsFor(90);
      options.smVersion = sm;
      options.buildPlans = false;
      INFO("sm_" << sm << ": " << describe(*Written<plan::Attention>(a)));
      CHECK_NOTHROW(make(*cudnn, a, options));
    }
  };
  for (AttentionKind kind : {AttentionKind::Forward, AttentionKind::Backward})
    for (plan::DType dtype : {plan::DType::BF16, plan::DType::F16})
      for (int64_t heads : {4, 6, 12})
        for (int64_t width : {32, 64})
          for (int64_t rows : {64, 256, 1024})
            for (bool causal : {false, true})
              valid(attentionFields(kind, dtype, 4, heads, rows, rows, width, causal));
  for (AttentionKind kind : {AttentionKind::Forward, AttentionKind::Backward}) {
    // queries are the last rows of a longer text
    valid(attentionFields(kind, plan::DType::BF16, 4, 6, 64, 256, 64, true));
    valid(attentionFields(kind, plan::DType::BF16, 4, 6, 64, 256, 64, false));
    valid(attentionFields(kind, plan::DType::BF16, 4, 6, 100, 100, 64, true));
  }
  auto withoutStatistics = attentionFields(AttentionKind::Forward, plan::DType::BF16, 4, 6, 64, 64, 64, true);
  withoutStatistics.lse = -1;
  valid(withoutStatistics);
}

TEST_CASE("cudnn: engines for attention, or what they want") {
  Cudnn *cudnn = library();
  if (!cudnn)
    return;
  for (int sm : {80, 90, 100})
    for (AttentionKind kind : {AttentionKind::Forward, AttentionKind::Backward})
      for (int64_t rows : {64, 1024})
        for (int64_t width : {32, 64}) {
          const auto a = attentionFields(kind, plan::DType::BF16, 4, 6, rows, rows, width, true);
          std::string error; // compiling needs the driver, which a machine without a GPU lacks
          size_t workspace = 0;
          try {
            workspace = make(*cudnn, a, optionsFor(sm))->workspaceBytes();
          } catch (const Error &e) {
            error = e.what();
          }
          CHECK(workspace <= size_t{256} << 20);
          if (error.empty())
            continue;
          CHECK_THAT(error, Contains("no engine for attention") && Contains("on sm_"));
          std::printf("skipped: %s\n", error.c_str());
          return;
        }
}
