// Compares a device with the reference device, step by step: exact on integers, close on reals. GPUs also in the half
// types and in TF32. The reference adds in f64 and rounds once.
#include "runtime/base/Error.h"
#include "runtime/base/Target.h"
#include "runtime/device/CpuDevice.h"
#include "tests/conformance/Convolutions.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <set>

#include "runtime/plan/Slices.h"
#include "tests/support/Worst.h"

using namespace cleave;
using namespace cleave::test;

namespace {

/// Whether the device multiplies matrices of this type. oneDNN supports bf16 only with AVX-512, and no f16; plans for
/// other processors widen such products to f32.
bool multipliesIn(plan::DType type) {
  if (onGpu() || type == plan::DType::F32)
    return true;
  return type == plan::DType::BF16 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

/// The allowed difference between a value and the reference's value.
struct Tolerance {
  Tolerance(double relative, double absolute = 0) : relative(relative), absolute(absolute) {}
  double relative; ///< relative to the largest value of the slot
  double absolute; ///< for operands up to 1; grows with the square of the operands
};

/// Tolerance for sums of up to `length` products, stored as `type`. By error analysis (Higham, Accuracy and Stability
/// of Numerical Algorithms, 2nd ed., 3.1), a sum in f32, in any order, is off by at most length * u * the sum of
/// magnitudes, which is at most `length`; u is 2^-23, because matrix units truncate instead of rounding. In addition
/// there are `roundings` to `type`, by the device and by the reference. TF32 truncates both factors of a product to 10
/// bits: an error of 2^-10 of each.
Tolerance rounding(plan::DType type, int64_t length, int roundings = 2, bool tf32 = false) {
  const auto n = static_cast<double>(length);
  return {roundings * unitRoundoff(type), n * (n * 0x1p-23 + (tf32 ? 2 * 0x1p-10 : 0))};
}

constexpr plan::DType halfTypes[] = {plan::DType::BF16, plan::DType::F16};

/// The same plan with f32 products in TF32.
PlanT inTf32(PlanT plan) {
  plan.training = std::make_unique<TrainingT>();
  plan.training->precision = Precision::Tf32;
  return plan;
}

/// Runs a plan on both devices and compares all slots except `skip`; a CPU runs it on 1 and on 3 threads.
void compare(const std::string &what, const PlanT &plan, Tolerance tolerance = 1e-5, int64_t mostIndex = 8,
             uint32_t skip = ~0u, bool exact = true) {
  INFO(what);
  for (Drawn data : {Drawn::Integers, Drawn::Reals}) {
    StepRun reference(plan);
    reference.draw(data, mostIndex);
    reference.run("reference", 1);
    for (unsigned threads : {1u, 3u}) {
      if (threads > 1 && onGpu())
        continue;
      StepRun tested(plan);
      tested.draw(data, mostIndex);
      tested.run(testedDevice(), threads);
      for (uint32_t s = 0; s < plan.programs[0]->slots.size(); ++s) {
        if (s == skip)
          continue;
        const auto expected = reference.values(s), found = tested.values(s);
        double scale = 1, worst = 0;
        size_t where = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          scale = std::max(scale, std::abs(expected[i]));
          if (const double next = worseOf(worst, std::abs(expected[i] - found[i])); next > worst) {
            worst = next;
            where = i;
          }
        }
        INFO("slot " << s << " element " << where << " threads " << threads);
        const double largest = data == Drawn::Integers ? 4 : 1; // the largest number drawn
        const double allowed = tolerance.relative * scale + tolerance.absolute * largest * largest;
        CHECK(worst <= (data == Drawn::Integers && exact ? 0 : allowed));
      }
    }
  }
}

struct Gemm {
  std::vector<int64_t> batch;
  int64_t m, n, k;
  bool ta = false, tb = false, tc = false, accumulate = false, bias = false, sharedB = false;
};

/// A matrix product with factors of one type, result and bias of another.
PlanT gemmPlan(const Gemm &g, plan::DType dtype = plan::DType::F32, plan::DType result = plan::DType::F32) {
  return stepPlan([&](ProgramWriter &w) {
    auto shape = [&](int64_t rows, int64_t columns) {
      auto all = g.batch;
      all.push_back(rows);
      all.push_back(columns);
      return all;
    };
    auto strides = [&](int64_t rows, int64_t columns, bool transposed, bool shared) {
      auto all = denseStrides(shape(rows, columns));
      if (transposed)
        all[all.size() - 2] = 1, all.back() = rows;
      for (size_t d = 0; shared && d + 2 < all.size(); ++d)
        all[d] = 0;
      return all;
    };
    uint32_t a = w.slot("a", dtype, shape(g.m, g.k), Space::Persistent);
    uint32_t b = w.slot("b", dtype, shape(g.k, g.n), Space::Persistent);
    uint32_t c = w.slot("c", result, shape(g.m, g.n), Space::Persistent);
    MatmulT op;
    if (g.bias)
      op.bias = static_cast<int>(w.slot("bias", result, {g.n}, Space::Persistent));
    op.a = w.view(a, strides(g.m, g.k, g.ta, false));
    op.b = w.view(b, strides(g.k, g.n, g.tb, g.sharedB));
    op.c = w.view(c, strides(g.m, g.n, g.tc, false));
    op.batch = g.batch;
    op.m = g.m, op.n = g.n, op.k = g.k;
    op.accumulate = g.accumulate;
    op.dtype = dtype;
    w.step(0, std::move(op));
  });
}

} // namespace

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
  return fmt::format("{} ic {} oc {} k {}{}{}{}{}", EnumNameConvKind(op.kind), op.ic, op.oc, op.kh,
                     op.nhwc ? " nhwc" : "", op.accumulate ? " accumulates" : "", op.bias == 0 ? " bias" : "",
                     op.epilogue == Epilogue::Relu ? " relu" : "");
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
    // The last three: several chunks of tiles, with all weights or all tiles transformed first, and for gradients of
    // weights.
    for (ConvT each : {conv(2, 16, 12, 32, 3, 1, 1), conv(3, 48, 5, 16, 3, 1, 0), conv(1, 32, 4, 80, 3, 1, 2),
                       conv(1, 112, 2, 96, 3, 1, 1), conv(1, 16, 9, 48, 5, 1, 2), conv(1, 48, 6, 32, 5, 1, 0),
                       conv(1, 32, 4, 16, 5, 1, 3), conv(2, 16, 21, 16, 3, 1, 1), conv(130, 16, 1, 144, 3, 1, 1),
                       conv(520, 16, 1, 16, 3, 1, 1)}) {
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
  for (Case c :
       {Case{2, 3, 8, 2, 2, 0}, {1, 16, 9, 3, 2, 1}, {2, 20, 7, 3, 1, 1}, {1, 5, 6, 6, 6, 0}, {2, 64, 8, 2, 2, 0}})
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
        if (onGpu())
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
      if (!multipliesIn(type))
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
