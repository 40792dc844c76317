// Names of architectures, and the architecture of this processor.
#include "runtime/base/Target.h"

#include "runtime/base/Error.h"
#include "runtime/base/Nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave {

static constexpr const char *targetNames[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4",
                                              "sm_80",  "sm_90",     "sm_100",    "emulated"};

std::string Target::text() const { return targetNames[static_cast<size_t>(arch)]; }

bool Target::runsHere() const {
  __builtin_cpu_init();
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"),
             v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  switch (arch) {
  case X86_64:
    return true;
  case X86_64_v2:
    return v2;
  case X86_64_v3:
    return v3;
  case X86_64_v4:
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  default:
    return false;
  }
}

std::optional<Target> Target::named(const std::string &text) {
  for (size_t i = 0; i < std::size(targetNames); ++i)
    if (text == targetNames[i])
      return Target(static_cast<Arch>(i));
  return std::nullopt;
}

std::vector<Target> Target::all(Kind kind) {
  return kind == Kind::Cpu ? std::vector<Target>{X86_64_v3, X86_64_v4} : std::vector<Target>{Sm80, Sm90, Sm100};
}

Target Target::parse(const std::string &text, Kind kind) {
  std::vector<std::string> known;
  for (const Target target : all(kind)) {
    if (text == target.text())
      return target;
    known.push_back(target.text());
  }
  if (kind == Kind::Cuda && text == Target(Emulated).text())
    return Emulated;
  throw userError(fmt::format("--target {}: is no target of the {} backend; it has {}", text, cleave::text(kind),
                              fmt::join(known, ", ")));
}

Target::Kind Target::parseKind(const std::string &text) {
  return oneOf("--backend", text, "cpu", {"cpu", "cuda"}) == "cuda" ? Kind::Cuda : Kind::Cpu;
}

const char *text(Target::Kind kind) { return kind == Target::Kind::Cuda ? "cuda" : "cpu"; }

} // namespace cleave
