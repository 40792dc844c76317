// The roofline: known products, waves and tiles, and monotonicity: what must never take less time.
#include "partitioner/cost/StepCost.h"
#include "runtime/base/Error.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

using namespace cleave;
using namespace cleave::partitioner;

namespace {

DeviceKind kindOf(const std::string &name, const std::string &backend = "cuda") {
  DeviceKind kind{.name = name, .backend = backend, .memoryGib = 80, .memoryGbPerS = 2000};
  kind.peakTflops = {20, 160, 300, 300};
  return kind;
}

StepWork product(int64_t m, int64_t n, int64_t k, Rate rate = Rate::Bf16, int64_t batch = 1) {
  StepWork work;
  work.kind = WorkClass::Product;
  work.m = m, work.n = n, work.k = k, work.batch = batch, work.rate = rate;
  const auto M = double(m), N = double(n), K = double(k), size = rate == Rate::Fp32 ? 4.0 : 2.0;
  work.flops = 2 * M * N * K * double(batch);
  work.bytes = (M * K + K * N + M * N) * size * double(batch);
  return work;
}

StepWork moving(WorkClass kind, double bytes) {
  StepWork work;
  work.kind = kind;
  work.bytes = bytes;
  return work;
}

} // namespace

TEST_CASE("a large product reaches the fraction of the peak that its device is known for") {
  for (const char *name : {"v100-16g", "a100-80g", "h100-80g", "another"}) {
    const CostDevice device(kindOf(name));
    const StepWork work = product(16384, 16384, 16384, Rate::Fp16);
    const double reached = work.flops / stepCost(work, device).seconds() / device.kind.peak(Rate::Fp16);
    const double fraction = device.constants.productFraction[size_t(Rate::Fp16)];
    CHECK(reached <= fraction);
    CHECK(reached >= 0.93 * fraction);
  }
}

TEST_CASE("waves: one tile more than the multiprocessors take twice the time") {
  const DeviceConstants &a100 = constantsOf(kindOf("a100-80g"));
  REQUIRE(a100.multiprocessors == 108);
  const double full = tiledFraction(108 * 256, 128, 4096, 1, Rate::Fp16, a100);
  CHECK(full == Approx(4096.0 / (4096 + a100.fillDepth[size_t(Rate::Fp16)])));
  const double over = tiledFraction(108 * 256 + 1, 128, 4096, 1, Rate::Fp16, a100);
  CHECK(over < 0.8 * full); // smaller tiles reduce the effect
}

TEST_CASE("few tiles and short sums reach less") {
  const DeviceConstants &a100 = constantsOf(kindOf("a100-80g"));
  CHECK(tiledFraction(256, 256, 1024, 1, Rate::Fp16, a100) < 0.5);
  double before = 0;
  for (int64_t k = 32; k <= 8192; k *= 2) {
    const double now = tiledFraction(108 * 256, 1024, k, 1, Rate::Fp16, a100);
    CHECK(now > before);
    before = now;
  }
}

TEST_CASE("what moves bytes takes the memory's time and a launch") {
  const CostDevice device(kindOf("a100-80g"));
  const auto &c = device.constants;
  const double bytes = 2e9;
  CHECK(stepCost(moving(WorkClass::Stream, bytes), device).seconds() ==
        Approx(c.launchSeconds + bytes / (2000e9 * c.memoryFraction[size_t(WorkClass::Stream)])));
  CHECK(stepCost(moving(WorkClass::Stream, 0), device).seconds() == c.launchSeconds);
  CHECK(stepCost(StepWork{}, device).seconds() == 0);
}

TEST_CASE("what fits into half of the cache moves at its bandwidth") {
  DeviceKind kind = kindOf("core", "cpu");
  kind.memoryGbPerS = 20;
  kind.cache = Cache{16, 60};
  const CostDevice device(kind);
  const double fraction = device.constants.memoryFraction[size_t(WorkClass::Stream)], half = 8 << 20;
  CHECK(stepCost(moving(WorkClass::Stream, half), device).memory == Approx(half / (60e9 * fraction)));
  CHECK(stepCost(moving(WorkClass::Stream, half + 1), device).memory == Approx((half + 1) / (20e9 * fraction)));
  kind.cache->gbPerS = 1; // not slower than memory
  CHECK(stepCost(moving(WorkClass::Stream, half), CostDevice(kind)).memory == Approx(half / (20e9 * fraction)));
}

TEST_CASE("a product of few operations a byte takes the memory's time") {
  const CostDevice device(kindOf("a100-80g"));
  const StepCost cost = stepCost(product(16, 65536, 4096), device);
  CHECK(cost.memory > cost.compute);
}

TEST_CASE("attention without a fused kernel sends its scores through memory") {
  StepWork work;
  work.kind = WorkClass::Attention;
  work.rate = Rate::Fp16;
  work.m = work.n = 2048, work.k = 64, work.batch = 96;
  work.flops = 4.0 * 2048 * 2048 * 64 * 96 / 2;
  work.bytes = 4.0 * 2048 * 64 * 96 * 2;
  work.scoreBytes = 2.0 * 2048 * 2048 * 96;
  for (const char *name : {"v100-16g", "a100-80g"}) { // the same devices, with and without a fused kernel
    const CostDevice apart(kindOf(name));
    DeviceKind kind = apart.kind;
    kind.fusedAttention = true;
    const CostDevice fused(kind);
    REQUIRE_FALSE(attentionIsFused(apart.kind));
    const double scores = work.scoreBytes / (2000e9 * apart.constants.memoryFraction[size_t(WorkClass::Stream)]);
    CHECK(stepCost(work, apart).seconds() > 2 * scores); // the softmax alone reads and writes the scores
    CHECK(stepCost(work, fused).compute == Approx(work.flops / (300e12 * fused.constants.attentionForward)));
    StepWork gradient = work;
    gradient.backward = true;
    gradient.flops *= 2.5;
    CHECK(stepCost(gradient, apart).seconds() > 3 * scores);
    CHECK(stepCost(gradient, fused).compute == Approx(gradient.flops / (300e12 * fused.constants.attentionBackward)));
  }
}

TEST_CASE("what attention keeps of a score where it is not fused") {
  CHECK(keptBytesPerScore(kindOf("a100-80g"), 2) == 5); // Korthikanti et al. 2022: 5 a s^2 b
  CHECK(keptBytesPerScore(kindOf("v100-16g"), 4) == 9);
  CHECK(keptBytesPerScore(kindOf("h100"), 2) == 0);
  CHECK(keptBytesPerScore(kindOf("core", "cpu"), 4) == 0);
  DeviceKind kind = kindOf("a100-80g");
  kind.fusedAttention = true;
  CHECK(keptBytesPerScore(kind, 2) == 0);
  kind = kindOf("h100");
  kind.fusedAttention = false;
  CHECK(keptBytesPerScore(kind, 2) == 5);
}

TEST_CASE("more work never takes less time, a faster device never more") {
  std::mt19937 random(7);
  const auto size = [&] { return int64_t(1) << std::uniform_int_distribution<int>(0, 13)(random); };
  for (const auto &[name, backend] : {std::pair("v100-16g", "cuda"), {"a100-80g", "cuda"}, {"x", "cuda"}, {"x", "cpu"}})
    for (int i = 0; i < 300; ++i) {
      const CostDevice device(kindOf(name, backend));
      DeviceKind better = device.kind;
      better.memoryGbPerS *= 2;
      for (double &peak : better.peakTflops)
        peak *= 2;
      const Rate rate = i % 2 && std::string(name) != "v100-16g" ? Rate::Bf16 : Rate::Fp32;
      const StepWork work = product(size(), size(), size(), rate, 1 + i % 3);
      const double now = stepCost(work, device).seconds();
      INFO(name << " " << work.m << " x " << work.n << " x " << work.k);
      CHECK(stepCost(work, CostDevice(better)).seconds() <= now);
      CHECK(stepCost(product(work.m * 2, work.n, work.k, rate, work.batch), device).seconds() >= now);
      CHECK(stepCost(product(work.m, work.n * 2, work.k, rate, work.batch), device).seconds() >= now);
      CHECK(stepCost(product(work.m, work.n, work.k * 2, rate, work.batch), device).seconds() >= now);
    }
}

TEST_CASE("a precision that the device does not have is refused by name") {
  DeviceKind kind = kindOf("v100-16g");
  kind.peakTflops[size_t(Rate::Bf16)] = 0;
  CHECK_THROWS_WITH(stepCost(product(64, 64, 64), CostDevice(kind)),
                    "device v100-16g of the cluster has no peak_tflops.bf16, which the plan's products need");
}

TEST_CASE("constants are those of the family, or of the backend") {
  CHECK(constantsOf(kindOf("a100-80g")).family == "a100");
  CHECK(constantsOf(kindOf("a100_40g")).family == "a100");
  CHECK(constantsOf(kindOf("a1000")).family == "cuda");
  CHECK(constantsOf(kindOf("a100", "cpu")).family == "cpu");
  std::set<std::string_view> families;
  for (const DeviceConstants &c : allConstants()) {
    CHECK(families.insert(c.family).second);
    CHECK(c.launchSeconds > 0);
    for (const double fraction : c.memoryFraction)
      CHECK((fraction > 0 && fraction <= 1));
    for (const auto &fractions : {c.productFraction, c.convolutionFraction})
      for (const double fraction : fractions)
        CHECK((fraction >= 0 && fraction <= 1));
    for (const double fraction : {c.insideFraction, c.wireFraction, c.messageFraction, c.networkFraction})
      CHECK((fraction > 0 && fraction <= 1));
  }
}
