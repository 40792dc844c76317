// Generates runs of normal numbers. Loops over a group of numbers take one operation at a time, so that the compiler
// vectorises them. Logarithm and cosine are series in double; products and sums are never contracted (see
// CMakeLists.txt), so every vector width gives the same bits.
#include "runtime/device/Philox.h"

#include <algorithm>
#include <bit>

namespace cleave {

namespace {

constexpr int group = 32; ///< numbers of 16 blocks

/// ln(x) for x = 2^-24 ... 1. x = 2^k m with m in [sqrt(1/2), sqrt(2)); ln(m) = 2 artanh((m - 1) / (m + 1)).
[[gnu::always_inline]] inline double logarithm(double x) {
  constexpr uint64_t one = 0x3ff0000000000000, root = 0x3fe6a09e667f3bcd; // 1 and sqrt(1/2)
  const uint64_t bits = std::bit_cast<uint64_t>(x) - root, k = bits & 0xfff0000000000000;
  const double m = std::bit_cast<double>(bits - k + root);
  // k holds the exponent in its upper bits; as the exponent of a double near 2^52 it becomes a number.
  const double exponent = std::bit_cast<double>((((k + one) >> 52) & 0xfff) | 0x4330000000000000) - 0x1p52 - 1023;
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 19;
  for (const double term : {1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    series = series * z + term;
  return exponent * 0.693147180559945309417 + 2 * (s + s * z * series);
}

/// cos(2 pi u) for u in [0, 1), a multiple of 2^-24: of the distance to the nearest quarter, which is exact.
[[gnu::always_inline]] inline double cosineOfTurns(double u) {
  constexpr double magic = 0x1.8p52; // the sum's lowest bits are the nearest integer
  const double shifted = u * 4 + magic;
  const uint64_t quarter = std::bit_cast<uint64_t>(shifted);
  const double y = (u - (shifted - magic) * 0.25) * 6.28318530717958647693, z = y * y;
  double sine = 1.0 / 355687428096000, cosine = 1.0 / 20922789888000; // 17!, 16!
  for (const double factorial : {-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0, 1.0})
    sine = sine * z + 1 / factorial;
  for (const double factorial : {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0, 1.0})
    cosine = cosine * z + 1 / factorial;
  sine *= y;
  // 0: cos, 1: -sin, 2: -cos, 3: sin
  const double value = quarter & 1 ? sine : cosine;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ ((quarter + 1) & 2) << 62);
}

/// Numbers first ... first + group - 1 from their uniform numbers.
[[gnu::always_inline]] inline void normals(double *out, const float *uniform) {
  for (int i = 0; i < group; ++i)
    out[i] = std::sqrt(-2 * logarithm(1 - double{uniform[2 * i]})) * cosineOfTurns(uniform[2 * i + 1]);
}

void normalsPlain(double *out, const float *uniform) { normals(out, uniform); }
[[gnu::target("avx2")]] void normalsAvx2(double *out, const float *uniform) { normals(out, uniform); }
[[gnu::target("avx512f,avx512dq,avx512vl")]] void normalsWide(double *out, const float *uniform) {
  normals(out, uniform);
}

} // namespace

void philoxFillNormal(double *out, uint64_t key, uint64_t stream, uint64_t first, int64_t count) {
  static const auto compute = __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") ? normalsWide
                              : __builtin_cpu_supports("avx2")                                         ? normalsAvx2
                                                                                                       : normalsPlain;
  float uniform[2 * group];
  double made[group];
  for (int64_t i = 0; i < count; i += group) {
    philoxFill(uniform, key, stream, 2 * (first + static_cast<uint64_t>(i)), 2 * group);
    compute(made, uniform);
    std::copy_n(made, std::min<int64_t>(group, count - i), out + i);
  }
}

} // namespace cleave
