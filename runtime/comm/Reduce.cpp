// Reduces block by block. A block is accumulated in a temporary buffer, because the output may be one of the inputs.
#include "runtime/comm/Reduce.h"

#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace cleave {

namespace {

using plan::ReduceKind;

constexpr int64_t blockElements = 1024;

/// Storage type of an element, and the type in which it is reduced.
template <typename Stored, typename Sum> struct Plain {
  using Element = Stored;
  using Accumulator = Sum;
  static Sum load(Stored value) { return static_cast<Sum>(value); }
  static Stored store(Sum value) { return static_cast<Stored>(value); }
};
struct Bfloat {
  using Element = uint16_t;
  using Accumulator = float;
  static float load(uint16_t value) { return bf16ToFloat(value); }
  static uint16_t store(float value) { return floatToBf16(value); }
};
struct Half {
  using Element = uint16_t;
  using Accumulator = float;
  static float load(uint16_t value) { return f16ToFloat(value); }
  static uint16_t store(float value) { return floatToF16(value); }
};

template <ReduceKind kind, typename T> T combine(T a, T b) {
  if constexpr (kind == ReduceKind::Sum)
    return static_cast<T>(a + b);
  else if constexpr (kind == ReduceKind::Max)
    return b > a || b != b ? b : a;
  else if constexpr (kind == ReduceKind::Min)
    return b < a || b != b ? b : a;
  else if constexpr (std::is_integral_v<T>)
    return a | b;
  else
    return a != 0 || b != 0 ? T{1} : T{0};
}

template <typename Format, ReduceKind kind>
void reduceBlocks(std::span<const void *const> inputs, int64_t offset, void *outBytes, int64_t count) {
  using Element = typename Format::Element;
  typename Format::Accumulator sum[blockElements];
  auto input = [&](size_t i) { return static_cast<const Element *>(inputs[i]) + offset; };
  auto *out = static_cast<Element *>(outBytes);
  for (int64_t begin = 0; begin < count; begin += blockElements) {
    int64_t size = std::min(blockElements, count - begin);
    const Element *first = input(0) + begin;
    for (int64_t i = 0; i < size; ++i)
      sum[i] = Format::load(first[i]);
    for (size_t k = 1; k < inputs.size(); ++k) {
      const Element *next = input(k) + begin;
      for (int64_t i = 0; i < size; ++i)
        sum[i] = combine<kind>(sum[i], Format::load(next[i]));
    }
    for (int64_t i = 0; i < size; ++i)
      out[begin + i] = Format::store(sum[i]);
  }
}

template <typename Format>
void reduceKind(ReduceKind kind, std::span<const void *const> inputs, int64_t offset, void *out, int64_t count) {
  switch (kind) {
  case ReduceKind::Sum:
    return reduceBlocks<Format, ReduceKind::Sum>(inputs, offset, out, count);
  case ReduceKind::Max:
    return reduceBlocks<Format, ReduceKind::Max>(inputs, offset, out, count);
  case ReduceKind::Min:
    return reduceBlocks<Format, ReduceKind::Min>(inputs, offset, out, count);
  case ReduceKind::Or:
    return reduceBlocks<Format, ReduceKind::Or>(inputs, offset, out, count);
  }
}

} // namespace

void reduceElements(plan::DType dtype, ReduceKind kind, std::span<const void *const> inputs, int64_t offset, void *out,
                    int64_t count) {
  switch (dtype) {
  case plan::DType::F32:
    return reduceKind<Plain<float, float>>(kind, inputs, offset, out, count);
  case plan::DType::F16:
    return reduceKind<Half>(kind, inputs, offset, out, count);
  case plan::DType::BF16:
    return reduceKind<Bfloat>(kind, inputs, offset, out, count);
  case plan::DType::I32:
    return reduceKind<Plain<int32_t, int32_t>>(kind, inputs, offset, out, count);
  case plan::DType::I64:
    return reduceKind<Plain<int64_t, int64_t>>(kind, inputs, offset, out, count);
  case plan::DType::I1: // boolean: the sum is a logical or
    return reduceKind<Plain<uint8_t, uint8_t>>(kind == ReduceKind::Sum ? ReduceKind::Or : kind, inputs, offset, out,
                                               count);
  case plan::DType::U8:
    return reduceKind<Plain<uint8_t, uint8_t>>(kind, inputs, offset, out, count);
  }
  assert(false && "unknown element type");
}

Part splitLines(int64_t count, int64_t element, unsigned members, unsigned member) {
  int64_t line = 64 / element, lines = (count + line - 1) / line;
  Part part = splitPart(lines, members, member);
  int64_t begin = std::min(count, part.begin * line), end = std::min(count, (part.begin + part.count) * line);
  return {begin, end - begin};
}

} // namespace cleave
