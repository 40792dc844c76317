// Rounding, strides and comparison of tensors.
#include "ir/interpreter/HostTensor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace cleave::ir {

/// The exponent of a double; less than -1022 if it is zero or subnormal.
static int exponentOf(double value) {
  return static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7FF) - 1023;
}

/// 2^exponent, which must be a normal number.
static double powerOfTwo(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// Rounds to nearest even in a binary format with `digits` significant bits and exponents from `least` to `most`.
static double roundBinary(double value, int digits, int least, int most) {
  if (value == 0 || !std::isfinite(value))
    return value;
  double rounded;
  if (exponentOf(value) >= least && digits < 53) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const uint64_t last = uint64_t{1} << (53 - digits), odd = bits / last & 1; // the last bit that is kept
    rounded = std::bit_cast<double>((bits + (last / 2 - 1 + odd)) & ~(last - 1));
  } else { // numbers below 2^least are multiples of one number
    const double quantum = std::ldexp(1.0, std::max(std::ilogb(value), least) - (digits - 1));
    rounded = std::nearbyint(value / quantum) * quantum;
  }
  return exponentOf(rounded) > most ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

/// Truncates towards zero. NaN and out-of-range values become the smallest integer, as on x86.
static int64_t truncated(double value) {
  return std::abs(value) < 0x1p63 ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
}

static thread_local Rounding rounding;

RoundingScope::RoundingScope(const Rounding &wanted) : before(rounding) { rounding = wanted; }
RoundingScope::~RoundingScope() { rounding = before; }
const Rounding &RoundingScope::now() { return rounding; }
const Rounding &currentRounding() { return rounding; }

/// A random number in [-1, 1): xorshift64* (Vigna 2016).
static double chance(uint64_t &state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return static_cast<double>(static_cast<int64_t>(state * 0x2545F4914F6CDD1Dull)) * 0x1p-63;
}

/// Number of significant bits of values of a type under noise.
static int noiseDigits(DType dtype) {
  return rounding.ofDouble ? 49 : dtype == DType::F32 ? 24 : dtype == DType::F16 ? 11 : 8;
}

/// `value` with a random relative error of at most `ulps` units of its last bit.
static double perturbed(double value, int digits, uint64_t &state) {
  return value * (1 + rounding.ulps * powerOfTwo(-digits) * chance(state));
}

/// The nearest f16 or bf16.
static double toHalf(DType dtype, double value) {
  return dtype == DType::F16 ? roundBinary(value, 11, -14, 15) : roundBinary(value, 8, -126, 127);
}

/// Rounds to `digits` significant bits; for a 16-bit type also to its range, and for f32 to its smallest values.
static double toGrid(DType dtype, double value, int digits) {
  return digits < 24 ? toHalf(dtype, value) : roundBinary(value, digits, digits == 24 ? -126 : -1022, 1023);
}

/// Rounds a float by any kind other than ToType.
static double roundOther(DType dtype, double value, uint64_t &state) {
  if (rounding.kind == Rounding::Kind::Digits)
    return roundBinary(value, rounding.digits, -1022, 1023);
  if (rounding.kind == Rounding::Kind::Noise) {
    const int digits = noiseDigits(dtype);
    if (toGrid(dtype, value, digits) == value) // exact, such as a product with 1 or a sum of whole numbers
      return value;
    return toGrid(dtype, perturbed(value, digits, state), digits);
  }
  if (std::isfinite(value))
    rounding.largest = std::max(rounding.largest, std::abs(value));
  return value;
}

double inside(DType dtype, double value) {
  return rounding.kind == Rounding::Kind::Noise ? roundOther(dtype, value, rounding.state) : value;
}

double castTo(DType dtype, double value) {
  if (rounding.kind != Rounding::Kind::Noise || !isFloat(dtype))
    return roundTo(dtype, value);
  if (rounding.ofDouble || dtype == DType::F32) // exact
    return value;
  uint64_t state = (std::bit_cast<uint64_t>(value) ^ rounding.sample) * 0x9E3779B97F4A7C15ull | 1;
  return roundOther(dtype, value, state);
}

double addend(double value) {
  const bool of12Bits = std::bit_cast<uint64_t>(value) << 23 == 0; // of significance
  if (rounding.kind != Rounding::Kind::Noise || of12Bits)
    return value;
  // Kernels round partial sums even if the addends are exact, so every addend gets an error.
  return perturbed(value, noiseDigits(rounding.addends), rounding.state);
}

void mixInTiles(double *values, int64_t count) {
  constexpr double growth = 4; // of the errors by the transforms, whose coefficients are up to 8
  if (rounding.kind != Rounding::Kind::Noise || !rounding.tiles)
    return;
  double largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::abs(values[i]));
  for (int64_t i = 0; i < count; ++i)
    values[i] += growth * rounding.ulps * std::ldexp(largest, -noiseDigits(DType::F32)) * chance(rounding.state);
}

void noteHalfAddends(double magnitudes) { rounding.halfAddends = std::max(rounding.halfAddends, magnitudes); }

double roundTo(DType dtype, double value) {
  if (rounding.kind != Rounding::Kind::ToType && isFloat(dtype))
    return roundOther(dtype, value, rounding.state);
  switch (dtype) {
  case DType::F32:
    return static_cast<float>(value);
  case DType::F16:
  case DType::BF16:
    return toHalf(dtype, value);
  case DType::I32:
    return static_cast<int32_t>(static_cast<uint32_t>(truncated(value)));
  case DType::I64:
    return static_cast<double>(truncated(value));
  case DType::I1:
    return value != 0;
  case DType::U8:
    return static_cast<uint8_t>(truncated(value));
  }
  return value;
}

HostTensor::HostTensor(std::vector<int64_t> shape, DType dtype, double value)
    : shape(std::move(shape)), dtype(dtype), values(elementCount(this->shape), roundTo(dtype, value)) {}

HostTensor::HostTensor(std::vector<int64_t> shape, DType dtype, std::vector<double> values)
    : shape(std::move(shape)), dtype(dtype), values(std::move(values)) {
  assert(elementCount(this->shape) == size());
  round();
}

void HostTensor::round() {
  if (dtype == DType::F32 && rounding.kind == Rounding::Kind::ToType) {
    for (double &value : values)
      value = static_cast<float>(value);
    return;
  }
  for (double &value : values)
    value = roundTo(dtype, value);
}

bool HostTensor::operator==(const HostTensor &other) const {
  if (shape != other.shape || dtype != other.dtype)
    return false;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != other.values[i] && !(std::isnan(values[i]) && std::isnan(other.values[i])))
      return false;
  return true;
}

int64_t elementCount(const std::vector<int64_t> &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

std::vector<int64_t> stridesOf(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string typeText(const HostTensor &tensor) {
  std::string text = "tensor<";
  for (int64_t size : tensor.shape)
    text += std::to_string(size) + "x";
  return text + dtypeName(tensor.dtype) + ">";
}

double largestError(const HostTensor &x, const HostTensor &y) {
  if (x.shape != y.shape)
    return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    double a = x.values[i], b = y.values[i];
    if (a == b || (std::isnan(a) && std::isnan(b)))
      continue;
    double error = std::abs(a - b) / std::max({1.0, std::abs(a), std::abs(b)});
    if (!(error <= largest))
      largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return largest;
}

} // namespace cleave::ir
