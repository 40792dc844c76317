// Rounding to element types, Philox's published vectors.
#include "ir/interpreter/Philox.h"
#include "tests/unit/ir/Ir.h"

#include <cmath>
#include <limits>

using namespace cleave::ir;
using cleave::DType;

TEST_CASE("values round to the nearest of their type") {
  CHECK(roundTo(DType::F32, 0.1) == 0.1f);
  CHECK(roundTo(DType::BF16, 1 + 0x1p-8) == 1);              // half way: to even
  CHECK(roundTo(DType::BF16, 1 + 3 * 0x1p-8) == 1 + 0x1p-6); // half way: to even
  CHECK(roundTo(DType::BF16, 1 + 0x1p-8 + 0x1p-20) == 1 + 0x1p-7);
  CHECK(roundTo(DType::BF16, 3e38) == Approx(3e38).epsilon(0.01));
  CHECK(std::isinf(roundTo(DType::BF16, 3.4e38)));
  CHECK(roundTo(DType::F16, 65504) == 65504);
  CHECK(roundTo(DType::F16, 65519.9) == 65504);
  CHECK(std::isinf(roundTo(DType::F16, 65520)));
  CHECK(roundTo(DType::F16, 0x1p-24) == 0x1p-24); // smallest subnormal
  CHECK(roundTo(DType::F16, 0x1p-25) == 0);       // half of it: to even
  CHECK(roundTo(DType::F16, 1.5 * 0x1p-24) == 2 * 0x1p-24);
  CHECK(roundTo(DType::F16, 0.1) == 0.0999755859375);
  CHECK(std::isnan(roundTo(DType::F16, std::nan(""))));
  CHECK(roundTo(DType::I32, -2.9) == -2);
  CHECK(roundTo(DType::I32, 0x1p31) == -0x1p31);
  CHECK(roundTo(DType::I1, 0.5) == 1);
}

TEST_CASE("philox gives the published vectors") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philoxBlock(0, {0, 0, 0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philoxBlock(~0ull, {~0u, ~0u, ~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philoxBlock(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(philoxUniform(0, 0, 1) == (0xe169c58d >> 8) * 0x1p-24);
}

TEST_CASE("names hash by FNV-1a") {
  CHECK(hashName("") == 0xcbf29ce484222325ull);
  CHECK(hashName("a") == 0xaf63dc4c8601ec8cull);
  CHECK(hashName("foobar") == 0x85944171f73967e8ull);
}

TEST_CASE("largestError is relative above one and absolute below") {
  CHECK(largestError(f32({2}, {1, 100}), f32({2}, {1, 101})) == Approx(1.0 / 101));
  CHECK(largestError(f32({1}, {0.25}), f32({1}, {0.5})) == 0.25);
  CHECK(std::isinf(largestError(f32({1}, {1}), f32({2}, {1, 1}))));
  CHECK(std::isinf(largestError(f32({1}, {std::numeric_limits<double>::quiet_NaN()}), f32({1}, {1}))));
}
