// The number types of a training step: what the options --precision, --opt-level, --loss-scale and --reduce-dtype say.
#pragma once
#include "runtime/base/Target.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

/// Loss scaling (Micikevicius et al. 2018): the loss's gradient is multiplied by a scale, so that small gradients do
/// not vanish in fp16; the update divides by it, and skips a step whose gradients are not finite.
struct LossScale {
  double initial = 65536;        ///< 2^16
  bool dynamic = true;           ///< false: `initial` stays
  int64_t growthInterval = 2000; ///< clean steps after which the scale doubles; a step that is skipped halves it

  /// No scale is larger: 2^24.
  static constexpr double largest = 16777216;
  bool operator==(const LossScale &) const = default;

  /// The value of --loss-scale: "dynamic", "none", or a fixed scale from 1 to `largest`. Throws userError for another.
  static std::optional<LossScale> parse(const std::string &text);
};

/// What LossScale::parse reads.
std::string text(const std::optional<LossScale> &scale);

struct Precision {
  enum class Type : uint8_t { Fp32, Tf32, Bf16, Fp16 };

  Type type = Type::Fp32; ///< of matrix products and, from level 2 on, of activations
  int64_t level = 0;      ///< how much of the step is in `type`, O0 to O3 (passes/precision/Precision.h); 0 unless half
  std::optional<LossScale> lossScale = {};
  Type reduce = Type::Fp32; ///< in which gradients are summed over dp: Fp32 or `type`

  bool operator==(const Precision &) const = default;

  /// The values of the options; empty: not given.
  struct Words {
    std::string type, level, lossScale, reduce;
  };
  /// What the options mean together. The half type alone means O2, a level alone fp16; fp16 has a dynamic loss scale
  /// unless another is given; gradients are summed in fp32 unless the parameters are half. Throws userError for a word
  /// that is not known, options that contradict each other, and a type that `backend` lacks.
  static Precision parse(const Words &words, Target::Kind backend);
  /// "fp32", "bf16" or "fp16", the value of an option. Throws userError for another word.
  static Type typeOf(const char *option, const std::string &text);
  /// Every option as a word: parse() gives the same precision.
  Words words() const;
};

/// "fp32", "tf32", "bf16" or "fp16".
const char *text(Precision::Type type);

} // namespace cleave
