// Compares a device with the reference device, step by step: exact on integers, close on reals. GPUs also in the half
// types and in TF32. The reference adds in f64 and rounds once.
#pragma once
#include "tests/conformance/DeviceRun.h"
#include "tests/support/Worst.h"

#include <catch2/catch.hpp>

#include <fmt/format.h>

namespace cleave::test {

/// Whether the device multiplies matrices of this type. oneDNN supports bf16 only with AVX-512, and no f16; plans for
/// other processors widen such products to f32.
inline bool multipliesIn(plan::DType type) {
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
inline Tolerance rounding(plan::DType type, int64_t length, int roundings = 2, bool tf32 = false) {
  const auto n = static_cast<double>(length);
  return {roundings * unitRoundoff(type), n * (n * 0x1p-23 + (tf32 ? 2 * 0x1p-10 : 0))};
}

inline constexpr plan::DType halfTypes[] = {plan::DType::BF16, plan::DType::F16};

/// The same plan with f32 products in TF32.
inline PlanT inTf32(PlanT plan) {
  plan.training = std::make_unique<TrainingT>();
  plan.training->precision = Precision::Tf32;
  return plan;
}

/// Runs a plan on both devices and compares all slots except `skip`; a CPU runs it on 1 and on 3 threads.
inline void compare(const std::string &what, const PlanT &plan, Tolerance tolerance = 1e-5, int64_t mostIndex = 8,
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
inline PlanT gemmPlan(const Gemm &g, plan::DType dtype = plan::DType::F32, plan::DType result = plan::DType::F32) {
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

} // namespace cleave::test
