// The number types of a training step, as set by the options --precision, --opt-level, --loss-scale and --reduce-dtype.
#pragma once
#include "runtime/base/Target.h"

#include <cstdint>
#include <optional>
#include <string>

namespace cleave {

/// Loss scaling (Micikevicius et al. 2018): the gradient of the loss is multiplied by a scale, so that small gradients
/// do not become zero in fp16. The update divides by the scale, and skips a step whose gradients are not finite.
struct LossScale {
  double initial = 65536;        ///< 2^16
  bool dynamic = true;           ///< false: the scale stays at `initial`
  int64_t growthInterval = 2000; ///< consecutive finite steps after which the scale doubles; a skipped step halves it

  /// The largest scale, 2^24.
  static constexpr double largest = 16777216;
  bool operator==(const LossScale &) const = default;

  /// Parses --loss-scale: "dynamic", "none", or a fixed scale from 1 to `largest`. Throws userError for other values.
  static std::optional<LossScale> parse(const std::string &text);
};

/// The text that LossScale::parse reads.
std::string text(const std::optional<LossScale> &scale);

struct Precision {
  enum class Type : uint8_t { Fp32, Tf32, Bf16, Fp16 };

  Type type = Type::Fp32; ///< of matrix products and, from level 2 on, of activations
  int64_t level = 0;      ///< how much of the step is in `type`, O0 to O3 (passes/precision/Precision.h); 0 unless half
  std::optional<LossScale> lossScale = {};
  Type reduce = Type::Fp32; ///< type in which gradients are summed over dp: Fp32 or `type`

  bool operator==(const Precision &) const = default;

  /// The values of the options as text; empty: not given.
  struct Words {
    std::string type = {}, level = {}, lossScale = {}, reduce = {};
  };
  /// Combines the options. A half type alone means O2, a level alone means fp16; fp16 has a dynamic loss scale unless
  /// another one is given; gradients are summed in fp32 unless the parameters are half. Throws userError for an unknown
  /// word, for options that contradict each other, and for a type that `backend` does not support.
  static Precision parse(const Words &words, Target::Kind backend);
  /// Parses "fp32", "bf16" or "fp16", the value of an option. Throws userError for another word.
  static Type typeOf(const char *option, const std::string &text);
  /// Every option as text, from which parse() gives the same precision.
  Words words() const;
};

/// "fp32", "tf32", "bf16" or "fp16".
const char *text(Precision::Type type);

} // namespace cleave
