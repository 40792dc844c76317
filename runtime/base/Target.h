// What a plan is compiled for: the kind of device, and the architecture of its code.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// An architecture that code is generated for. `--target` and `Plan.target` name it.
struct Target {
  /// Where a plan runs. `--backend` and `Plan.backend` name it.
  enum class Kind : uint8_t { Cpu, Cuda };
  /// Architectures of x86-64 by the levels of its psABI, of NVIDIA's GPUs by compute capability. Emulated: a GPU's code
  /// for threads that a CPU plays one by one, which tests run where there is no GPU.
  enum class Arch : uint8_t { X86_64, X86_64_v2, X86_64_v3, X86_64_v4, Sm80, Sm90, Sm100, Emulated };
  using enum Arch;

  Arch arch;

  constexpr Target(Arch arch) : arch(arch) {}
  constexpr bool operator==(const Target &) const = default;

  constexpr Kind kind() const { return arch < Sm80 ? Kind::Cpu : Kind::Cuda; }
  constexpr bool gpu() const { return kind() == Kind::Cuda; }
  /// "x86-64-v4", "sm_90", "emulated".
  std::string text() const;
  /// Whether this processor runs its code. False for GPUs.
  bool runsHere() const;

  /// The architecture of this name; none where there is no such.
  static std::optional<Target> named(const std::string &text);
  /// What plans of this kind are compiled for, the emulated one aside.
  static std::vector<Target> all(Kind kind);
  /// The value of --target. Throws userError where it is none of all(kind) and not the emulated one of GPUs.
  static Target parse(const std::string &text, Kind kind);
  /// The value of --backend; Cpu where it is empty. Throws userError for any other word than "cpu" and "cuda".
  static Kind parseKind(const std::string &text);
};

/// "cpu" or "cuda".
const char *text(Target::Kind kind);

} // namespace cleave
