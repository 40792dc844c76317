// Attention and its gradients: compares a device with the reference device.
#include "runtime/base/Target.h"
#include "tests/conformance/DeviceRun.h"
#include "tests/support/Worst.h"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>

using namespace cleave;
using namespace cleave::test;

namespace {

struct AttentionShape {
  int64_t batch, heads, rows, keys, width;
};

/// What is given besides queries, keys and values.
struct Extras {
  bool bias = false;  ///< the same for all heads; it hides some keys, and all keys of the second row
  double dropout = 0; ///< 0: none
};

/// `apart`: the heads of the result one after the other, otherwise those of a row side by side.
PlanT attentionPlan(const AttentionShape &s, bool backward, bool causal, bool apart, plan::DType dtype,
                    const Extras &extras) {
  return stepPlan([&](ProgramWriter &w) {
    AttentionT op;
    op.kind = backward ? AttentionKind::Backward : AttentionKind::Forward;
    op.batch = s.batch, op.heads = s.heads, op.rows = s.rows, op.keys = s.keys, op.width = s.width;
    op.scale = 0.25, op.causal = causal, op.dtype = dtype, op.dropout = extras.dropout;
    const int64_t scores = s.rows * s.keys;
    if (extras.bias)
      op.bias = w.view(w.slot("bias", plan::DType::F32, {s.batch, scores}, Space::Persistent), {scores, 0, s.keys, 1});
    if (extras.dropout > 0)
      op.keep = w.view(w.slot("keep", plan::DType::I1, {s.batch, s.heads * scores}, Space::Persistent),
                       {s.heads * scores, scores, s.keys, 1});
    const int64_t all = s.heads * s.width;
    const std::vector<int64_t> own = apart ? std::vector<int64_t>{s.rows * all, s.rows * s.width, s.width, 1}
                                           : std::vector<int64_t>{s.rows * all, s.width, all, 1};
    const auto whole = [&](const char *name) {
      return w.view(w.slot(name, dtype, {s.batch, s.rows, s.heads, s.width}, Space::Persistent), own);
    };
    // The heads are cut out of one projection; those of the queries out of another one if there are other keys.
    const auto fused = [&](const std::string &prefix) {
      const bool same = s.rows == s.keys;
      const uint32_t kv = w.slot(prefix + "kv", dtype, {s.batch, s.keys, same ? 3 : 2, s.heads, s.width},
                                 Space::Persistent),
                     q = same ? kv
                              : w.slot(prefix + "q", dtype, {s.batch, s.rows, s.heads, s.width}, Space::Persistent);
      const auto part = [&](uint32_t slot, int64_t rows, int64_t parts, int64_t i) {
        return w.view(slot, {rows * parts * all, s.width, parts * all, 1},
                      static_cast<uint64_t>(i * all) * dtypeSize(dtype));
      };
      const int64_t parts = same ? 3 : 2;
      return std::array{part(q, s.rows, same ? 3 : 1, 0), part(kv, s.keys, parts, parts - 2),
                        part(kv, s.keys, parts, parts - 1)};
    };
    auto [q, k, v] = fused("");
    op.q = std::move(q), op.k = std::move(k), op.v = std::move(v);
    op.out = whole("out");
    op.lse = static_cast<int>(w.slot("lse", plan::DType::F32, {s.batch, s.heads, s.rows}, Space::Persistent));
    if (backward) {
      op.dout = whole("dout");
      auto [dq, dk, dv] = fused("d");
      op.dq = std::move(dq), op.dk = std::move(dk), op.dv = std::move(dv);
    }
    w.step(0, std::move(op));
  });
}

/// Runs one step on both devices with the same random operands and compares all slots.
void compareAttention(const AttentionShape &s, bool backward, bool causal, bool apart, plan::DType dtype,
                      const char *target = nullptr, const Extras &extras = {}) {
  PlanT plan = attentionPlan(s, backward, causal, apart, dtype, extras);
  if (target)
    plan.target = target;
  StepRun reference(plan), device(plan);
  for (StepRun *run : {&reference, &device}) {
    run->draw(Drawn::Reals, 8);
    for (size_t slot = 0; backward && slot < plan.programs[0]->slots.size(); ++slot) // plausible logarithms of sums
      if (plan.programs[0]->slots[slot]->shape.size() == 3)
        for (int64_t i = 0; i < run->count(static_cast<uint32_t>(slot)); ++i)
          storeElement(run->slot(static_cast<uint32_t>(slot)), i, plan::DType::F32,
                       std::log(static_cast<double>(s.keys)) + 0.3);
    const auto fill = [&](const char *name, plan::DType type, auto value) {
      for (uint32_t slot = 0; slot < plan.programs[0]->slots.size(); ++slot)
        for (int64_t i = 0; plan.programs[0]->slots[slot]->name == name && i < run->count(slot); ++i)
          storeElement(run->slot(slot), i, type, value(i));
    };
    fill("bias", plan::DType::F32, [&](int64_t i) {
      const bool hidden = i % 7 == 3 || i % (s.rows * s.keys) / s.keys == 1;
      return hidden ? -std::numeric_limits<double>::infinity() : static_cast<double>(i % 5) * 0.125;
    });
    fill("keep", plan::DType::I1, [](int64_t i) { return i * i % 11 < 8; });
  }
  reference.run("reference", 1);
  device.run(onGpu() ? "cuda" : "cpu", onGpu() ? 1 : 3);
  for (uint32_t slot = 0; slot < plan.programs[0]->slots.size(); ++slot) {
    const auto expected = reference.values(slot), found = device.values(slot);
    double worst = 0, scale = 1;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == found[i]) // also infinities
        continue;
      worst = worseOf(worst, std::abs(expected[i] - found[i]));
      scale = std::max(scale, std::abs(expected[i]));
    }
    INFO("slot " << slot << (backward ? " backward" : " forward") << (causal ? " causal " : " ") << s.batch << " x "
                 << s.heads << " heads, " << s.rows << " rows, " << s.keys << " keys, width " << s.width << " in "
                 << dtypeName(dtype) << " " << (target ? target : ""));
    // Both devices round their results. The tested device also rounds the probabilities or the scores' gradients, whose
    // sums of magnitudes are a few times the largest result.
    CHECK(worst <= std::max(8 * unitRoundoff(dtype), 2e-6) * scale);
  }
}

} // namespace

TEST_CASE("attention: both directions, heads cut out of one projection") {
  for (int flags = 0; flags < 8; ++flags)
    for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16, plan::DType::F16})
      if (onGpu() ? dtype != plan::DType::F32 : dtype != plan::DType::F16)
        compareAttention({2, 3, 9, 9, 16}, flags & 1, flags & 2, flags & 4, dtype, onGpu() ? nullptr : "x86-64-v3");
  if (onGpu())
    return;
  // On CPUs: sizes that fill no block, vector or panel, several blocks of rows, other keys.
  for (const char *target : {"x86-64-v3", "x86-64-v4"})
    for (const AttentionShape &s : {AttentionShape{1, 1, 1, 1, 1},
                                    {1, 2, 131, 131, 40},
                                    {1, 1, 50, 77, 64},
                                    {2, 1, 3, 70, 5},
                                    {1, 2, 97, 97, 96},
                                    {0, 2, 4, 4, 8}})
      for (int flags = 0; flags < 4; ++flags)
        for (plan::DType dtype : {plan::DType::F32, plan::DType::BF16})
          if (Target::named(target)->runsHere())
            for (const Extras &extras : {Extras{}, {.bias = true}, {.dropout = 0.25}, {.bias = true, .dropout = 0.25}})
              compareAttention(s, flags & 1, flags & 2, true, dtype, target, extras);
}
