// The other steps of a device against the reference device.
#include "runtime/base/Error.h"
#include "runtime/device/CpuDevice.h"
#include "runtime/plan/Slices.h"
#include "tests/conformance/Compare.h"
#include "tests/conformance/Convolutions.h"

#include <set>

using namespace cleave;
using namespace cleave::test;

namespace {

/// A plan with a forward pooling step, then the backward step of the same gradient.
PlanT poolPlan(PoolT op, bool max, plan::DType dtype = plan::DType::F32) {
  op.dtype = dtype;
  return stepPlan([&](ProgramWriter &w) {
    auto layout = [&](int64_t h, int64_t x) {
      return op.nhwc ? std::vector<int64_t>{op.n, h, x, op.c} : std::vector<int64_t>{op.n, op.c, h, x};
    };
    op.workspace = static_cast<int>(w.slot("places", plan::DType::I32, layout(op.oh, op.ow), Space::Persistent));
    op.src = w.slot("src", dtype, layout(op.ih, op.iw), Space::Persistent);
    op.dst = w.slot("dst", dtype, layout(op.oh, op.ow), Space::Persistent);
    uint32_t dstGradient = w.slot("dst'", dtype, layout(op.oh, op.ow), Space::Persistent);
    uint32_t srcGradient = w.slot("src'", dtype, layout(op.ih, op.iw), Space::Persistent);
    op.kind = max ? PoolKind::MaxForward : PoolKind::AverageForward;
    w.step(0, op);
    op.kind = max ? PoolKind::MaxBackward : PoolKind::AverageBackward;
    op.src = srcGradient;
    op.dst = dstGradient;
    w.step(0, op);
  });
}

} // namespace

TEST_CASE("pooling: forward and backward; the first maximum takes the gradient") {
  struct Case {
    int64_t n, c, size, k, stride, pad;
  };
  for (Case c : {Case{2, 3, 8, 2, 2, 0},
                 {1, 16, 9, 3, 2, 1},
                 {2, 20, 7, 3, 1, 1},
                 {1, 5, 6, 6, 6, 0},
                 {2, 64, 8, 2, 2, 0},
                 {1, 127, 8, 2, 3, 0},
                 {1, 4, 20, 17, 2, 8}})
    for (int flags = 0; flags < 8; ++flags) {
      PoolT op;
      op.n = c.n, op.c = c.c, op.ih = c.size, op.iw = c.size + 2, op.kh = op.kw = c.k;
      op.stride_h = op.stride_w = c.stride;
      op.pad_top = op.pad_left = op.pad_bottom = op.pad_right = c.pad;
      op.oh = (op.ih + 2 * c.pad - c.k) / c.stride + 1;
      op.ow = (op.iw + 2 * c.pad - c.k) / c.stride + 1;
      op.nhwc = flags & 1;
      op.include_padding = flags & 2;
      // Integers in [-4, 4] give many ties. Their averages are rounded, so average pooling is not exact.
      bool max = flags & 4;
      const std::string what = fmt::format("pool {} k {} flags {}", c.c, c.k, flags);
      compare(what, poolPlan(op, max), 1e-5, 8, 0, max);
      for (plan::DType type : halfTypes)
        if (onGpu() || type == plan::DType::BF16)
          compare(what + " in " + dtypeName(type), poolPlan(op, max, type), rounding(type, c.k * c.k), 8, 0, max);
    }
}

namespace {

/// Runs a plan on both devices with NaN in slot `planted`; both must have the same NaN and numbers.
void compareWithNan(const PlanT &plan, uint32_t planted) {
  std::vector<std::unique_ptr<StepRun>> runs;
  for (const std::string &device : {std::string("reference"), testedDevice()}) {
    runs.push_back(std::make_unique<StepRun>(plan));
    StepRun &run = *runs.back();
    run.draw(Drawn::Integers, 8);
    for (int64_t i = 5; i < run.count(planted); i += i % 3 ? 1 : 40)
      storeElement(run.slot(planted), i, run.info(planted).dtype(), NAN);
    run.run(device, 2);
  }
  size_t lost = 0, nans = 0;
  for (uint32_t s = 0; s < plan.programs[0]->slots.size(); ++s) {
    if (s == 0 && plan.programs[0]->slots[0]->dtype == plan::DType::I32)
      continue; // the indices of maxima have each device's format
    const auto expected = runs[0]->values(s), found = runs[1]->values(s);
    for (size_t i = 0; i < expected.size(); ++i) {
      nans += std::isnan(expected[i]);
      lost += !(std::isnan(expected[i]) ? std::isnan(found[i]) : expected[i] == found[i]);
    }
  }
  CHECK(nans > static_cast<size_t>(runs[0]->count(planted)) / 50);
  CHECK(lost == 0);
}

} // namespace

TEST_CASE("pooling: the largest of a window is NaN if one is, and the last NaN takes the gradient") {
  for (bool nhwc : {false, true})
    for (plan::DType type : {plan::DType::F32, plan::DType::BF16, plan::DType::F16}) {
      if (!onGpu() && type == plan::DType::F16)
        continue;
      INFO(dtypeName(type) << " nhwc " << nhwc);
      PoolT op;
      op.n = 2, op.c = 16, op.ih = op.iw = 12, op.kh = op.kw = 3, op.stride_h = op.stride_w = 2;
      op.pad_top = op.pad_left = op.pad_bottom = op.pad_right = 1, op.oh = op.ow = 6, op.nhwc = nhwc;
      compareWithNan(poolPlan(op, true, type), 1);
    }
}

TEST_CASE("convolution: ReLU keeps NaN") {
  ConvT relu = conv(2, 16, 12, 16, 3, 1, 1);
  relu.epilogue = Epilogue::Relu;
  relu.bias = 0;
  compareWithNan(convPlan(relu), 0);
}

TEST_CASE("copies: any strides") {
  struct Case {
    std::vector<int64_t> shape, src, dst;
  };
  for (const Case &c :
       {Case{{6, 8}, {8, 1}, {8, 1}}, Case{{6, 8}, {8, 1}, {1, 6}}, Case{{37, 53}, {1, 37}, {53, 1}},
        Case{{2, 5, 3, 4}, {60, 4, 20, 1}, {60, 12, 4, 1}}, Case{{3, 1, 7}, {7, 7, 1}, {14, 7, 2}},
        Case{{4, 9}, {0, 1}, {9, 1}}, Case{{4, 9}, {1, 0}, {9, 1}}, Case{{}, {}, {}}, Case{{0, 3}, {3, 1}, {3, 1}},
        Case{{5, 6, 7}, {1, 5, 30}, {42, 7, 1}}, Case{{2, 40, 30}, {1200, 1, 40}, {1200, 30, 1}},
        Case{{300, 500}, {500, 1}, {1, 300}}, Case{{100000}, {1}, {1}}, Case{{2, 3, 5}, {1, 2, 6}, {5, 10, 1}}})
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::I64, plan::DType::I1}) {
      INFO("rank " << c.shape.size() << " type " << dtypeName(dtype));
      const auto extent =
          [&](const std::vector<int64_t> &strides) { // and elements behind it that must stay as they are
            int64_t last = 0;
            for (size_t i = 0; i < strides.size(); ++i)
              last += std::max<int64_t>(c.shape[i] - 1, 0) * strides[i];
            return last + 1 + 100;
          };
      compare("copy", stepPlan([&](ProgramWriter &w) {
                CopyT op;
                uint32_t src = w.slot("src", dtype, {extent(c.src)}, Space::Persistent),
                         dst = w.slot("dst", dtype, {extent(c.dst)}, Space::Persistent);
                op.src = w.view(src, c.src);
                op.dst = w.view(dst, c.dst);
                op.shape = c.shape;
                op.dtype = dtype;
                w.step(0, std::move(op));
              }),
              0);
    }
}

TEST_CASE("copies: the source begins where the rank's table says") {
  for (auto strides : {std::vector<int64_t>{10, 1}, {1, 10}}) {
    PlanT plan = stepPlan([&](ProgramWriter &w) {
      CopyT op;
      uint32_t src = w.slot("src", plan::DType::F32, {100}, Space::Persistent);
      op.src = w.view(src, strides, 8);
      op.dst = w.view(w.slot("dst", plan::DType::F32, {12}, Space::Persistent), {4, 1});
      op.shape = {3, 4};
      op.src_offset_scalar = 1;
      w.step(0, std::move(op));
    });
    plan.ranks[0]->scalars = {3, 5};
    compare("copy from a start", plan, 0);
    StepRun run(plan);
    run.draw(Drawn::Reals, 8);
    run.run(testedDevice(), 1);
    for (int64_t i = 0; i < 12; ++i)
      CHECK(run.values(1)[static_cast<size_t>(i)] ==
            run.values(0)[static_cast<size_t>(2 + 5 + i / 4 * strides[0] + i % 4 * strides[1])]);
  }
}

TEST_CASE("fills") {
  for (plan::DType dtype :
       {plan::DType::F32, plan::DType::F16, plan::DType::BF16, plan::DType::I32, plan::DType::I64, plan::DType::I1}) {
    StepRun run(stepPlan([&](ProgramWriter &w) {
      FillT op;
      op.dst = w.slot("dst", dtype, {70001}, Space::Persistent);
      op.value = 1;
      op.dtype = dtype;
      w.step(0, op);
    }));
    run.run(testedDevice(), 3);
    for (double x : run.values(0))
      REQUIRE(x == 1);
  }
}

TEST_CASE("lookups and their gradients: indices outside count as nothing") {
  for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
    for (int64_t width : {1, 5, 64}) {
      compare("embedding", stepPlan([&](ProgramWriter &w) {
                EmbeddingT op;
                op.rows = 6, op.width = width, op.count = 300, op.dtype = dtype;
                op.table = w.slot("table", dtype, {6, width}, Space::Persistent);
                op.ids = w.slot("ids", plan::DType::I32, {300}, Space::Persistent);
                op.out = w.slot("out", dtype, {300, width}, Space::Persistent);
                w.step(0, op);
              }));
      for (bool accumulate : {false, true})
        compare("embedding gradient", stepPlan([&](ProgramWriter &w) {
                  EmbeddingGradT op;
                  op.rows = 6, op.width = width, op.count = 30, op.dtype = dtype, op.accumulate = accumulate;
                  op.dtable = w.slot("dtable", dtype, {6, width}, Space::Persistent);
                  op.ids = w.slot("ids", plan::DType::I32, {30}, Space::Persistent);
                  op.grad = w.slot("grad", dtype, {30, width}, Space::Persistent);
                  w.step(0, op);
                }),
                rounding(dtype, 31)); // one row may sum all gradients and its old value
      for (auto [outer, inner] : {std::pair<int64_t, int64_t>{7, width}, {1, width}, {40, 1}}) {
        compare("gather", stepPlan([&](ProgramWriter &w) {
                  GatherT op;
                  op.outer = outer, op.extent = 5, op.count = 4, op.inner = inner, op.dtype = dtype;
                  op.src = w.slot("src", dtype, {outer, 5, inner}, Space::Persistent);
                  op.index = w.slot("index", plan::DType::I32, {outer, 4, inner}, Space::Persistent);
                  op.out = w.slot("out", dtype, {outer, 4, inner}, Space::Persistent);
                  w.step(0, op);
                }));
        compare("scatter-add", stepPlan([&](ProgramWriter &w) {
                  ScatterAddT op;
                  op.outer = outer, op.extent = 5, op.count = 4, op.inner = inner, op.dtype = dtype;
                  op.src = w.slot("src", dtype, {outer, 4, inner}, Space::Persistent);
                  op.index = w.slot("index", plan::DType::I32, {outer, 4, inner}, Space::Persistent);
                  op.out = w.slot("out", dtype, {outer, 5, inner}, Space::Persistent);
                  w.step(0, op);
                }),
                rounding(dtype, 5, 5)); // each of the four additions rounds
      }
    }
}

TEST_CASE("random: any split draws the same numbers") {
  auto draw = [](uint32_t dp, uint32_t tp, uint32_t coordDp, uint32_t coordTp, int32_t microbatch, unsigned threads) {
    PlanT plan = stepPlan([&](ProgramWriter &w) {
      std::vector<int64_t> local{splitPart(5, dp, coordDp).count, splitPart(3, tp, coordTp).count, 70};
      uint32_t out = w.slot("out", plan::DType::F32, local, Space::Persistent);
      w.shard(out, {{{5, {0}}}, {{3, {1}}}, {{70, {}}}});
      RandomT op;
      op.out = out;
      op.key = 1234;
      op.shape = {5, 3, 70};
      w.step(0, op);
    });
    plan.mesh[0]->size = dp;
    plan.mesh[1]->size = tp;
    plan.ranks[0]->coords = {coordDp, coordTp, 0};
    StepRun run(plan);
    run.run(testedDevice(), threads, {{7}, microbatch});
    return run.values(0);
  };
  for (int32_t microbatch : {0, 2}) {
    auto whole = draw(1, 1, 0, 0, microbatch, 1);
    for (int64_t i = 0; i < 1050; ++i)
      REQUIRE(whole[static_cast<size_t>(i)] ==
              philoxUniform(99 ^ 1234, 7, static_cast<uint64_t>(microbatch * 1050 + i)));
    for (uint32_t d = 0; d < 2; ++d)
      for (uint32_t t = 0; t < 2; ++t) {
        auto part = draw(2, 2, d, t, microbatch, 2);
        Part rows = splitPart(5, 2, d), columns = splitPart(3, 2, t);
        size_t i = 0;
        for (int64_t r = 0; r < rows.count; ++r)
          for (int64_t c = 0; c < columns.count; ++c)
            for (int64_t x = 0; x < 70; ++x)
              REQUIRE(part[i++] == whole[static_cast<size_t>(((rows.begin + r) * 3 + columns.begin + c) * 70 + x)]);
      }
  }
}

TEST_CASE("random: an evaluation's numbers are those of its samples") {
  // `rows` a microbatch of two, `first` and `count`: the samples that the batch repeats
  const auto draw = [](int64_t rows, int64_t each, int32_t microbatch, int64_t first, int64_t count) {
    PlanT plan = stepPlan([&](ProgramWriter &w) {
      RandomT op;
      op.out = w.slot("out", plan::DType::F32, {rows * each}, Space::Persistent);
      op.key = 1234;
      op.shape = {rows * each};
      w.step(0, op);
    });
    plan.batch = static_cast<uint32_t>(2 * rows);
    plan.microbatches = 2;
    StepRun run(plan);
    run.run(testedDevice(), 2, {{evaluationStream(9), first, count}, microbatch});
    return run.values(0);
  };
  const auto expected = [](int64_t sample, int64_t each, int64_t i) {
    return philoxUniform(99 ^ 1234, evaluationStream(9), static_cast<uint64_t>(sample * each + i));
  };
  constexpr int64_t each = 70;
  for (const int64_t rows : {3, 100})
    for (const int64_t count : {int64_t(1), rows - 1, rows + 1, 2 * rows})
      for (const int32_t microbatch : {0, 1}) {
        const auto values = draw(rows, each, microbatch, 40, count);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < each; ++i)
            REQUIRE(values[static_cast<size_t>(r * each + i)] ==
                    expected(40 + (microbatch * rows + r) % count, each, i));
      }
}

TEST_CASE("random: numbers of no rows are new in each microbatch of an evaluation") {
  const auto draw = [](int32_t microbatch, int64_t first) {
    PlanT plan = stepPlan([&](ProgramWriter &w) {
      RandomT op;
      op.out = w.slot("out", plan::DType::F32, {70}, Space::Persistent);
      op.key = 1234;
      op.shape = {70};
      w.step(0, op);
    });
    plan.batch = 8; // four rows a microbatch
    plan.microbatches = 2;
    StepRun run(plan);
    run.run(testedDevice(), 1, {{evaluationStream(0), first, 8}, microbatch});
    return run.values(0);
  };
  std::set<double> all;
  for (const int64_t first : {0, 8, 16})
    for (const int32_t microbatch : {0, 1})
      for (const double value : draw(microbatch, first))
        CHECK(all.insert(value).second);
}

TEST_CASE("random: whether numbers are at least another one") {
  StepRun run(stepPlan([&](ProgramWriter &w) {
    RandomT op;
    op.out = w.slot("out", plan::DType::I1, {9, 701}, Space::Persistent);
    op.key = 1234, op.shape = {9, 701};
    op.dtype = plan::DType::I1, op.at_least = 0.25;
    w.step(0, op);
  }));
  run.run(testedDevice(), 2, {{7}, 0});
  const auto values = run.values(0);
  for (size_t i = 0; i < values.size(); ++i)
    REQUIRE(values[i] == (philoxUniform(99 ^ 1234, 7, i) >= 0.25f));
}

TEST_CASE("random: half types are f32's numbers, rounded") {
  for (plan::DType dtype : halfTypes) {
    const PlanT plan = stepPlan([&](ProgramWriter &w) {
      RandomT op;
      op.out = w.slot("out", dtype, {7, 31}, Space::Persistent);
      w.shard(op.out, {{{7, {}}}, {{31, {}}}});
      op.key = 1234;
      op.shape = {7, 31};
      op.dtype = dtype;
      w.step(0, op);
    });
    compare(std::string("random in ") + dtypeName(dtype), plan, 0);
  }
}

TEST_CASE("results repeat bit for bit at the same number of threads") {
  for (const PlanT &plan :
       {gemmPlan({{}, 70, 50, 600}), gemmPlan({{6}, 30, 40, 50, true}), convPlan(conv(4, 16, 10, 16, 3, 1, 1))})
    for (unsigned threads : {1u, 2u}) {
      std::vector<double> first;
      for (int round = 0; round < 3; ++round) {
        StepRun run(plan);
        run.draw(Drawn::Reals, 8);
        run.run(testedDevice(), threads);
        auto found = run.values(2);
        if (round == 0)
          first = found;
        CHECK(found == first);
      }
    }
}

TEST_CASE("devices: names that are not there") {
  auto statusOf = [](const std::string &name) {
    try {
      makeDevice(name, 1);
      return Status::Success;
    } catch (const Error &error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(name) != std::string::npos);
      return error.status;
    }
  };
  CHECK(statusOf("cuda") == Status::User); // device memory needs the Executor, not makeDevice
  CHECK(statusOf("tpu") == Status::User);
  CHECK(statusOf("cpu") == (cpuLibraryVersion().empty() ? Status::User : Status::Success)); // a build without oneDNN
}
