// Pooling has the same bits with every kind of vectors, so that plans for any processor may use those of this one.
#include "runtime/base/Target.h"
#include "runtime/device/Philox.h"
#include "runtime/device/PoolKernels.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using namespace cleave;

namespace {

/// The result, the places and the gradient of one image, as bytes.
std::vector<uint8_t> pooled(const PoolKernels &kernels, const PoolShape &s, bool half) {
  const bool wide = s.kh * s.kw > 256;
  const auto count = [&](int64_t h, int64_t w) { return static_cast<size_t>(h * w * s.channels); };
  const size_t in = count(s.inH, s.inW), out = count(s.outH, s.outW), bytes = half ? 2 : 4;
  std::vector<float> drawn(in);
  philoxFill(drawn.data(), 3, 0, 0, static_cast<int64_t>(in));
  for (size_t i = 0; i < in; i += 29)
    drawn[i] = NAN;
  std::vector<uint16_t> halves;
  for (float value : drawn)
    halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  const void *image = half ? static_cast<const void *>(halves.data()) : drawn.data();
  std::vector<uint8_t> all((out + in) * bytes + out * (wide ? 4 : 1));
  uint8_t *places = all.data() + (out + in) * bytes, *gradient = all.data() + out * bytes;
  for (int64_t y = 0; y < s.outH; ++y)
    kernels.forward[half][wide](s, image, y, all.data(), places);
  for (int64_t y = 0; y < s.inH; ++y)
    kernels.backward[half][wide](s, all.data(), places, y, gradient);
  return all;
}

} // namespace

TEST_CASE("pooling: the same bits with every kind of vectors") {
  for (const PoolRule rule : {PoolRule::Largest, PoolRule::Average, PoolRule::AverageWithPadding})
    for (int64_t channels : {1, 3, 4, 16, 37, 129})
      for (const PoolShape &s : {PoolShape{rule, channels, 8, 10, 4, 5, 2, 2, 2, 2, 0, 0},
                                 {rule, channels, 9, 9, 5, 5, 3, 3, 2, 2, 1, 1},
                                 {rule, channels, 7, 12, 2, 3, 2, 3, 4, 5, 0, 0},
                                 {rule, channels, 20, 21, 10, 11, 17, 17, 2, 2, 8, 8}})
        for (const bool half : {false, true}) {
          const auto expected = pooled(poolSse, s, half);
          INFO("rule " << static_cast<int>(rule) << " channels " << channels << " kernel " << s.kh << " half " << half);
          if (Target(Target::X86_64_v3).runsHere())
            CHECK(pooled(poolAvx2, s, half) == expected);
          if (Target(Target::X86_64_v4).runsHere())
            CHECK(pooled(poolAvx512, s, half) == expected);
        }
}
