// Reads and writes the options of precision.
#include "runtime/base/Precision.h"

#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"
#include "runtime/base/ParseNumber.h"

#include <fmt/format.h>

namespace cleave {

using Type = Precision::Type;

static constexpr const char *names[] = {"fp32", "tf32", "bf16", "fp16"};

const char *text(Type type) { return names[static_cast<size_t>(type)]; }

static Type typeNamed(const std::string &name) {
  size_t i = 0;
  while (name != names[i])
    ++i;
  return static_cast<Type>(i);
}

std::optional<LossScale> LossScale::parse(const std::string &text) {
  if (text == "none")
    return std::nullopt;
  if (text == "dynamic")
    return LossScale{};
  const std::optional<double> value = parseNumber<double>(text);
  if (!value || *value < 1 || *value > largest)
    throw userError(fmt::format("--loss-scale {}: must be dynamic, none, or a number from 1 to {}", text, largest));
  return LossScale{.initial = *value, .dynamic = false};
}

std::string text(const std::optional<LossScale> &scale) {
  return !scale ? "none" : scale->dynamic ? "dynamic" : fmt::format("{}", scale->initial);
}

Precision Precision::parse(const Words &words, Target::Kind backend) {
  const std::string type = oneOf("--precision", words.type, "", {"fp32", "tf32", "bf16", "fp16"}),
                    level = oneOf("--opt-level", words.level, "", {"O0", "O1", "O2", "O3"});
  if (type == "tf32" && backend == Target::Kind::Cpu)
    throw userError("--precision tf32: is a mode of NVIDIA's tensor cores; the cpu backend has fp32, bf16 and fp16");
  const bool half = type == "bf16" || type == "fp16";
  if (!level.empty() && half == (level == "O0") && !type.empty())
    throw userError(fmt::format("--opt-level {}: contradicts --precision {}", level, type));
  Precision made;
  made.level = !level.empty() ? level[1] - '0' : half ? 2 : 0;
  made.type = !type.empty() ? typeNamed(type) : made.level > 0 ? Type::Fp16 : Type::Fp32;
  made.lossScale = LossScale::parse(!words.lossScale.empty()  ? words.lossScale
                                    : made.type == Type::Fp16 ? "dynamic"
                                                              : "none");
  made.reduce = !words.reduce.empty() ? typeOf("--reduce-dtype", words.reduce)
                : made.level == 3     ? made.type
                                      : Type::Fp32;
  if (made.reduce != Type::Fp32 && (made.level == 0 || made.reduce != made.type))
    throw userError(fmt::format("--reduce-dtype {}: must be fp32 or the half type of the run, whose --precision is {}",
                                text(made.reduce), text(made.type)));
  return made;
}

Type Precision::typeOf(const char *option, const std::string &text) {
  return typeNamed(oneOf(option, text, "fp32", {"fp32", "bf16", "fp16"}));
}

Precision::Words Precision::words() const {
  return {text(type), fmt::format("O{}", level), text(lossScale), text(reduce)};
}

} // namespace cleave
