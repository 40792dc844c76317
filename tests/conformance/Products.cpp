// Matrix products and convolutions of a device against the reference device.
#include "runtime/base/Error.h"
#include "runtime/base/Target.h"
#include "runtime/device/ConvLoops.h"
#include "tests/conformance/Compare.h"
#include "tests/conformance/Convolutions.h"

using namespace cleave;
using namespace cleave::test;

TEST_CASE("matmul: transposes, batches, bias, accumulation") {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes{{5, 7, 3},    {1, 10, 64}, {33, 1, 17},
                                                           {64, 48, 80}, {1, 1, 1},   {20, 30, 1}};
  for (auto [m, n, k] : sizes)
    for (int flags = 0; flags < 32; ++flags)
      compare(fmt::format("{}x{}x{} flags {}", m, n, k, flags),
              gemmPlan(
                  {{}, m, n, k, bool(flags & 1), bool(flags & 2), bool(flags & 4), bool(flags & 8), bool(flags & 16)}));
  for (std::vector<int64_t> batch : {std::vector<int64_t>{4}, {2, 3}, {2, 1, 2}, {1}})
    for (int flags = 0; flags < 64; ++flags)
      compare(fmt::format("batch of {} flags {}", batch.size(), flags),
              gemmPlan({batch, 12, 9, 16, bool(flags & 1), bool(flags & 2), bool(flags & 4), bool(flags & 8),
                        bool(flags & 16), bool(flags & 32)}));
}

TEST_CASE("matmul: empty sizes") {
  for (auto [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{0, 4, 3}, {4, 0, 3}, {4, 3, 0}})
    for (int flags = 0; flags < 4; ++flags)
      compare("empty", gemmPlan({{}, m, n, k, false, false, false, bool(flags & 1), bool(flags & 2)}));
  compare("empty batch", gemmPlan({{0, 2}, 4, 3, 2}));
}

TEST_CASE("matmul: the sizes where another routine is taken") {
  for (int flags = 0; flags < 8; ++flags)
    compare(fmt::format("large, flags {}", flags),
            gemmPlan({{}, 1030, 1025, 3, bool(flags & 1), bool(flags & 2), false, bool(flags & 4), true}));
  compare("large, transposed result", gemmPlan({{}, 1030, 1025, 3, false, false, true, false, true}));
  compare("wide", gemmPlan({{}, 3, 1025, 1030}), 1e-4);
}

TEST_CASE("matmul: heads cut out of a fused projection") {
  // q and k in [B, T, 3, H, D], scores [B, H, T, T]; then scores times v into [B, T, H, D]
  int64_t B = 2, T = 19, H = 3, D = 8, width = 3 * H * D;
  const auto heads = [&](bool second, plan::DType type) {
    return stepPlan([&](ProgramWriter &w) {
      const auto part = [&](int64_t i) { return static_cast<uint64_t>(i * H * D) * dtypeSize(type); };
      uint32_t qkv = w.slot("qkv", type, {B, T, 3, H, D}, Space::Persistent);
      uint32_t scores = w.slot("scores", type, {B, H, T, T}, Space::Persistent);
      uint32_t out = w.slot("out", type, {B, T, H, D}, Space::Persistent);
      MatmulT op;
      op.batch = {B, H};
      op.m = T;
      op.dtype = type;
      if (second) {
        op.a = w.view(scores, {H * T * T, T * T, T, 1});
        op.b = w.view(qkv, {T * width, D, width, 1}, part(2));
        op.c = w.view(out, {T * H * D, D, H * D, 1});
        op.n = D, op.k = T;
      } else {
        op.a = w.view(qkv, {T * width, D, width, 1});
        op.b = w.view(qkv, {T * width, D, 1, width}, part(1));
        op.c = w.view(scores, {H * T * T, T * T, T, 1});
        op.n = T, op.k = D;
      }
      w.step(0, std::move(op));
    });
  };
  for (bool second : {false, true}) {
    compare("attention", heads(second, plan::DType::F32));
    if (!onGpu())
      continue;
    compare("attention in tf32", inTf32(heads(second, plan::DType::F32)), rounding(plan::DType::F32, T, 2, true));
    for (plan::DType type : halfTypes)
      compare(std::string("attention in ") + dtypeName(type), heads(second, type), rounding(type, T));
  }
}

namespace {

/// A product with an epilogue, with or without bias and auxiliary matrix; `pad`: elements between the rows of c and of
/// the auxiliary matrix.
PlanT epiloguePlan(Epilogue epilogue, plan::DType dtype, plan::DType biasType, int64_t m, int64_t n, int64_t k,
                   bool bias, bool aux, int64_t pad) {
  return stepPlan([&](ProgramWriter &w) {
    uint32_t a = w.slot("a", dtype, {m, k}, Space::Persistent), b = w.slot("b", dtype, {k, n}, Space::Persistent),
             c = w.slot("c", dtype, {m, n + pad}, Space::Persistent);
    MatmulT op;
    op.a = w.view(a, {k, 1}), op.b = w.view(b, {n, 1}), op.c = w.view(c, {n + pad, 1});
    op.m = m, op.n = n, op.k = k, op.dtype = dtype;
    op.epilogue = epilogue;
    if (bias)
      op.bias = static_cast<int>(w.slot("bias", biasType, {n}, Space::Persistent));
    if (aux)
      op.aux = w.view(w.slot("aux", dtype, {m, n + pad}, Space::Persistent), {n + pad, 1});
    w.step(0, std::move(op));
  });
}

} // namespace

TEST_CASE("matmul: epilogues") {
  // cuBLASLt's epilogues support 16 x 24, but not the other sizes.
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes{
      {16, 24, 8}, {5, 7, 3}, {9, 1, 4}, {1, 8, 16}, {6, 8, 0}};
  for (auto [m, n, k] : sizes)
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
      for (int flags = 0; flags < 8; ++flags) {
        if (!multipliesIn(dtype))
          continue;
        const bool bias = flags & 1, aux = flags & 2;
        const int64_t pad = k && flags & 4 ? 8 : 0;
        const plan::DType biasType = flags & 4 ? plan::DType::F32 : dtype;
        // In half types the sum may have been rounded before the epilogue.
        const double tolerance = dtype == plan::DType::F32 ? 1e-5 : dtype == plan::DType::F16 ? 2e-3 : 1.6e-2;
        INFO(dtypeName(dtype) << " bias " << bias << " aux " << aux);
        const auto check = [&](Epilogue epilogue, bool biased, bool beside) {
          compare(fmt::format("{} {}x{}x{} pad {}", EnumNameEpilogue(epilogue), m, n, k, pad),
                  epiloguePlan(epilogue, dtype, biasType, m, n, k, biased, beside, pad), tolerance, 8, ~0u, false);
        };
        if (!aux)
          check(Epilogue::Relu, bias, false);
        check(Epilogue::Gelu, bias, aux);
        if (!bias)
          check(Epilogue::GeluGradient, false, true);
      }
}

TEST_CASE("matmul: the sums of a's rows beside the product") {
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes{{16, 24, 8}, {5, 7, 3}, {33, 8, 200}, {8, 16, 0}};
  for (auto [m, n, k] : sizes)
    for (auto [dtype, result] : {std::pair{plan::DType::F32, plan::DType::F32},
                                 {plan::DType::BF16, plan::DType::F32},
                                 {plan::DType::F16, plan::DType::F32}})
      for (int flags = 0; flags < 8; ++flags) {
        const bool transposed = flags & 1, accumulate = flags & 2, exchanged = flags & 4;
        if (!multipliesIn(dtype))
          continue;
        const PlanT plan = stepPlan([&, m = m, n = n, k = k, dtype = dtype, result = result](ProgramWriter &w) {
          uint32_t a = w.slot("a", dtype, {m, k}, Space::Persistent), b = w.slot("b", dtype, {k, n}, Space::Persistent),
                   c = w.slot("c", result, {m, n}, Space::Persistent);
          MatmulT op;
          op.a = transposed ? w.view(a, {1, m}) : w.view(a, {k, 1});
          op.b = w.view(b, {n, 1}), op.c = exchanged ? w.view(c, {1, m}) : w.view(c, {n, 1});
          op.m = m, op.n = n, op.k = k, op.dtype = result;
          op.accumulate = accumulate;
          op.row_sums = static_cast<int>(w.slot("sums", result, {m}, Space::Persistent));
          w.step(0, std::move(op));
        });
        compare(fmt::format("{}x{}x{} {} flags {}", m, n, k, dtypeName(dtype), flags), plan, rounding(result, k + 2));
      }
}

TEST_CASE("matmul: bf16 operands, f32 result") {
  if (!multipliesIn(plan::DType::BF16)) { // an unsupported product is an error
    StepRun run(gemmPlan({{}, 17, 33, 40}, plan::DType::BF16));
    CHECK_THROWS_WITH(run.run("cpu", 1), Catch::Contains("has no primitive for a Matmul step"));
    return;
  }
  compare("bf16", gemmPlan({{}, 17, 33, 40}, plan::DType::BF16), rounding(plan::DType::F32, 40));
}

TEST_CASE("matmul: our own loops, for each kind of vectors") {
  // One row or column, sizes that fill no vector, panel or unit, several blocks of the depth, several chunks of
  // columns.
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes{
      {1, 1, 1}, {7, 5, 3}, {13, 70, 33}, {53, 66, 31}, {100, 96, 64}, {5, 130, 2060}, {3, 1100, 2100}};
  for (const char *target : {"x86-64-v3", "x86-64-v4"}) {
    if (!onGpu() && !Target::named(target)->runsHere())
      continue;
    for (auto [m, n, k] : sizes)
      for (int flags : {0, 1, 2, 3, 4, 8, 16, 20, 27})
        for (auto [type, result] : {std::pair{plan::DType::F32, plan::DType::F32},
                                    {plan::DType::BF16, plan::DType::BF16},
                                    {plan::DType::BF16, plan::DType::F32}}) {
          if (!multipliesIn(type) || (n > 1000 && flags > 3))
            continue;
          PlanT plan = gemmPlan(
              {{}, m, n, k, bool(flags & 1), bool(flags & 2), bool(flags & 4), bool(flags & 8), bool(flags & 16)}, type,
              result);
          plan.target = onGpu() ? plan.target : target;
          const bool twice = onGpu() && (flags & 16) && (flags & 4) && result != plan::DType::F32;
          compare(
              fmt::format("{} {}x{}x{} flags {} {} to {}", target, m, n, k, flags, dtypeName(type), dtypeName(result)),
              plan, rounding(result, k + 2, twice ? 3 : 2), 8, ~0u, !twice);
        }
  }
}

TEST_CASE("matmul: a matrix of several products that changes between iterations") {
  PlanT made = makePlan(1);
  if (!onGpu())
    made.target = Target::named("x86-64-v3")->runsHere() ? "x86-64-v3" : "x86-64";
  ProgramWriter w;
  w.segment();
  const auto persistent = [&](const char *name, int64_t rows, int64_t columns) {
    return w.slot(name, plan::DType::F32, {rows, columns}, Space::Persistent);
  };
  const uint32_t a = persistent("a", 9, 40), b = persistent("b", 40, 70), c = persistent("c", 9, 70),
                 d = persistent("d", 9, 70);
  for (const uint32_t result : {c, d}) {
    MatmulT op;
    op.a = w.view(a, {40, 1}), op.b = w.view(b, {70, 1}), op.c = w.view(result, {70, 1});
    op.m = 9, op.n = 70, op.k = 40;
    w.step(0, std::move(op));
  }
  w.action(0);
  made.programs.push_back(w.finish());
  LocalWorld world{1};
  made.backend = onGpu() ? "cuda" : made.backend;
  const auto executor = makeExecutor(seal(made), 0, world[0], {.device = testedDevice(), .tuning = "off"});
  const auto floats = [&](uint32_t slot) { return reinterpret_cast<float *>(executor->persistent(slot).data()); };
  for (int step = 1; step <= 3; ++step) {
    std::fill_n(floats(a), 9 * 40, 1.f);
    std::fill_n(floats(b), 40 * 70, static_cast<float>(step));
    executor->writeBack();
    executor->train(step, 0);
    executor->wait();
    for (const uint32_t result : {c, d})
      for (int i = 0; i < 9 * 70; ++i)
        REQUIRE(floats(result)[i] == 40.f * static_cast<float>(step));
  }
}

TEST_CASE("matmul: half types and TF32") {
  if (!onGpu())
    return; // with oneDNN the plan widens half types
  const auto all = [](const std::string &what, const Gemm &g) {
    compare(what + " in tf32", inTf32(gemmPlan(g)), rounding(plan::DType::F32, g.k + 2, 2, true));
    // A separate kernel adds a bias whose direction differs from the library's, to an already rounded result.
    const bool twice = g.bias && g.tc;
    for (plan::DType type : halfTypes) {
      compare(what + " in " + dtypeName(type), gemmPlan(g, type, type), rounding(type, g.k + 2, twice ? 3 : 2), 8, ~0u,
              !twice);
      compare(what + " to f32 from " + dtypeName(type), gemmPlan(g, type), rounding(plan::DType::F32, g.k + 2));
    }
  };
  std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes{{5, 7, 3}, {33, 1, 17}, {64, 48, 80}, {20, 30, 1}};
  for (auto [m, n, k] : sizes)
    for (int flags : {0, 1, 2, 4, 8, 16, 20, 27}) // each flag alone, and some together
      all(fmt::format("{}x{}x{} flags {}", m, n, k, flags),
          {{}, m, n, k, bool(flags & 1), bool(flags & 2), bool(flags & 4), bool(flags & 8), bool(flags & 16)});
  for (int flags : {0, 3, 4, 8, 16, 32, 59})
    all(fmt::format("batch of 2 x 3 flags {}", flags), {{2, 3},
                                                        12,
                                                        9,
                                                        16,
                                                        bool(flags & 1),
                                                        bool(flags & 2),
                                                        bool(flags & 4),
                                                        bool(flags & 8),
                                                        bool(flags & 16),
                                                        bool(flags & 32)});
}

static std::string describe(const ConvT &op) {
  return fmt::format("{} ic {} oc {} k {} dilation {}{}{}{}{}", EnumNameConvKind(op.kind), op.ic, op.oc, op.kh,
                     op.dilation_h, op.nhwc ? " nhwc" : "", op.accumulate ? " accumulates" : "",
                     op.bias == 0 ? " bias" : "", op.epilogue == Epilogue::Relu ? " relu" : "");
}

TEST_CASE("convolution: directions, layouts, strides, groups, accumulation, bias, ReLU") {
  for (const ConvT &each : convolutions())
    forEachDirection(each, [](const ConvT &op) { compare(describe(op), convPlan(op), 1e-4); });
}

TEST_CASE("convolution: Winograd") {
  // A CPU uses the vectors of the plan's target. cuDNN chooses its own method.
  for (const char *target : {"x86-64-v3", "x86-64-v4"}) {
    if (!onGpu() && !Target::named(target)->runsHere())
      continue;
    // The last four: several chunks of tiles, with all weights or all tiles transformed first, and for gradients of
    // weights, whose sums of some output channels at a time are the last one's.
    for (ConvT each : {conv(2, 16, 12, 32, 3, 1, 1), conv(3, 48, 5, 16, 3, 1, 0), conv(1, 32, 4, 80, 3, 1, 2),
                       conv(1, 112, 2, 96, 3, 1, 1), conv(1, 16, 9, 48, 5, 1, 2), conv(1, 48, 6, 32, 5, 1, 0),
                       conv(1, 32, 4, 16, 5, 1, 3), conv(2, 16, 13, 32, 3, 1, 2, 1, 2), conv(1, 32, 9, 16, 3, 1, 0, 1, 3),
                       conv(2, 16, 3, 48, 3, 1, 6, 1, 6), conv(1, 16, 11, 16, 5, 1, 5, 1, 2), conv(2, 16, 21, 16, 3, 1, 1),
                       conv(130, 16, 1, 144, 3, 1, 1), conv(520, 16, 1, 16, 3, 1, 1), conv(1, 272, 2, 272, 3, 1, 1)}) {
      each.winograd = true;
      forEachDirection(each, [&](const ConvT &op) {
        if (!op.nhwc || op.epilogue != Epilogue::None)
          return;
        const auto check = [&](plan::DType type, plan::DType gradient, const Tolerance &tolerance) {
          PlanT plan = convPlan(op, type, gradient);
          plan.target = onGpu() ? plan.target : target;
          compare(fmt::format("{} {} {} to {}", describe(op), target, dtypeName(type), dtypeName(gradient)), plan,
                  tolerance, 8, ~0u, false);
        };
        const auto f32 = plan::DType::F32, bf16 = plan::DType::BF16;
        check(f32, f32, 1e-4);
        check(bf16, bf16, rounding(bf16, productsOf(op), op.accumulate || op.bias == 0 ? 3 : 2));
        if (op.kind == ConvKind::BackwardWeights && !onGpu())
          check(bf16, f32, 1e-4);
      });
    }
  }
}

TEST_CASE("convolution: gradients of weights do not depend on the number of threads") {
  // Parts of the rows of positions and of the output channels; then sums of some output channels at a time; then
  // depthwise ones.
  for (const char *target : {"x86-64-v3", "x86-64-v4"})
    for (ConvT each :
         {conv(3, 32, 9, 80, 3, 1, 1), conv(2, 16, 7, 48, 5, 1, 2), conv(1, 272, 4, 272, 3, 1, 1),
          conv(1, 1040, 2, 80, 3, 1, 1), conv(7, 32, 9, 32, 3, 1, 1, 32), conv(1, 8, 300, 8, 3, 1, 1, 8)}) {
      if (!onGpu() && !Target::named(target)->runsHere())
        continue;
      each.winograd = each.groups == 1;
      forEachDirection(each, [&](const ConvT &op) {
        if (!op.nhwc || op.kind != ConvKind::BackwardWeights)
          return;
        PlanT plan = convPlan(op, plan::DType::F32, plan::DType::F32);
        plan.target = onGpu() ? plan.target : target;
        std::vector<std::vector<double>> found;
        for (const unsigned threads : {1u, 2u, 3u, 4u, 6u, 7u}) {
          if (threads > 1 && onGpu())
            continue;
          StepRun run(plan);
          run.draw(Drawn::Reals, 8);
          run.run(testedDevice(), threads);
          found.push_back(run.values(op.weights));
          INFO(describe(op) << " " << target << " threads " << threads);
          CHECK(found.back() == found.front());
        }
      });
    }
}

/// Runs a plan's convolution by our own loops, also where the device prefers another method; false if there are none.
static bool runLoops(StepRun &run, unsigned threads) {
  const Plan &plan = run.file->plan();
  const Program &program = *plan.programs()->Get(0);
  const Segment &segment = *program.segments()->Get(0);
  SlotScope scope(plan, program, *plan.ranks()->Get(0), segment);
  Workspace workspace;
  const auto op = makeGemmConv(*segment.steps()->Get(0)->op_as_Conv(), scope, workspace, threads);
  if (!op)
    return false;
  std::vector<std::byte> memory(workspace.need + 64, std::byte{0xff}); // NaN: nothing may read what it did not write
  workspace.memory = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  std::vector<std::byte *> table;
  for (uint32_t slot : scope.slots())
    table.push_back(run.slot(slot));
  op->run(table.data(), {{1}, 0});
  return true;
}

/// Gradients of weights of windows of few channels, by our own loops, for which the device may prefer another method.
static void checkFewChannels(const char *target) {
  for (const ConvT &each :
       {conv(3, 3, 17, 34, 3, 2, 1), conv(1, 5, 11, 40, 5, 1, 2), conv(2, 1, 12, 33, 3, 1, 2, 1, 2),
        conv(2, 3, 70, 48, 7, 2, 3), conv(1, 2, 1, 1, 3, 1, 4)})
    forEachDirection(each, [&](const ConvT &op) {
      if (!op.nhwc || op.kind != ConvKind::BackwardWeights)
        return;
      for (const plan::DType type : {plan::DType::F32, plan::DType::BF16}) {
        PlanT plan = convPlan(op, type, plan::DType::F32);
        plan.target = target;
        StepRun reference(plan);
        reference.draw(Drawn::Integers, 8);
        reference.run("reference", 1);
        for (const unsigned threads : {1u, 2u, 3u, 7u}) {
          StepRun tested(plan);
          tested.draw(Drawn::Integers, 8);
          INFO(describe(op) << " " << target << " " << dtypeName(type) << " threads " << threads);
          if (runLoops(tested, threads))
            CHECK(tested.values(op.weights) == reference.values(op.weights));
          else
            CHECK(type == plan::DType::BF16); // without products of its pairs
        }
      }
    });
}

TEST_CASE("convolution: our own loops, for each kind of vectors") {
  for (const char *target : {"x86-64-v3", "x86-64-v4"}) {
    if (!onGpu() && !Target::named(target)->runsHere())
      continue;
    if (!onGpu())
      checkFewChannels(target);
    // Several panels of channels, channels that fill none or no vector, several blocks of pixels, strides with elements
    // of the window that reach nothing. Then windows of few channels, and depthwise ones.
    const ConvT all[] = {
        conv(5, 32, 14, 34, 3, 1, 1),       conv(2, 34, 9, 130, 3, 2, 1),       conv(1, 32, 10, 46, 1, 3, 0),
        conv(1, 36, 13, 34, 3, 3, 1, 1, 2), conv(2, 33, 7, 35, 3, 2, 1),        conv(3, 3, 17, 34, 3, 2, 1),
        conv(1, 5, 11, 40, 5, 1, 2),        conv(2, 1, 12, 33, 3, 1, 2, 1, 2),  conv(3, 16, 12, 16, 3, 1, 1, 16),
        conv(2, 80, 9, 80, 7, 1, 3, 80),    conv(2, 33, 11, 33, 5, 2, 2, 33),   conv(5, 48, 13, 48, 3, 2, 2, 48, 2),
        conv(1, 18, 11, 18, 9, 1, 0, 18),   conv(1, 144, 7, 144, 1, 3, 0, 144), conv(9, 7, 2, 7, 3, 1, 1, 7)};
    for (const ConvT &each : all)
      forEachDirection(each, [&](const ConvT &op) {
        if (!op.nhwc || op.epilogue != Epilogue::None)
          return;
        const bool more = op.accumulate || op.bias == 0;
        const auto check = [&](plan::DType type, plan::DType gradient, const Tolerance &tolerance, bool exact) {
          PlanT plan = convPlan(op, type, gradient);
          plan.target = onGpu() ? plan.target : target;
          compare(fmt::format("{} {} {} to {}", describe(op), target, dtypeName(type), dtypeName(gradient)), plan,
                  tolerance, 8, ~0u, exact);
        };
        const auto f32 = plan::DType::F32, bf16 = plan::DType::BF16;
        check(f32, f32, 1e-4, true);
        if (!multipliesIn(bf16))
          return;
        check(bf16, bf16, rounding(bf16, productsOf(op), more ? 3 : 2), !more);
        if (op.kind == ConvKind::BackwardWeights && !onGpu())
          check(bf16, f32, 1e-4, true);
      });
  }
}

TEST_CASE("convolution: half types and TF32") {
  if (!onGpu())
    return; // with oneDNN the plan widens half types
  for (const ConvT &each : halfConvolutions())
    forEachDirection(each, [](const ConvT &op) {
      const bool more = op.accumulate || op.bias == 0; // added to a result that may be rounded already
      const int64_t length = productsOf(op) + (more ? 1 : 0);
      compare(describe(op) + " in tf32", inTf32(convPlan(op)), rounding(plan::DType::F32, length, 2, true));
      for (plan::DType type : halfTypes)
        compare(describe(op) + " in " + dtypeName(type), convPlan(op, type), rounding(type, length, more ? 3 : 2), 8,
                ~0u, !more);
    });
}

TEST_CASE("convolution: an empty share of the batch") {
  for (ConvKind kind : {ConvKind::Forward, ConvKind::BackwardData, ConvKind::BackwardWeights}) {
    ConvT op = conv(0, 3, 8, 4, 3, 1, 1);
    op.kind = kind;
    compare("empty", convPlan(op));
  }
}
