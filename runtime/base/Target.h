// The target of a plan: the kind of device, and the architecture of its code.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave {

/// An architecture for which code is generated, as named by `--target` and `Plan.target`.
struct Target {
  /// The kind of device that runs a plan, as named by `--backend` and `Plan.backend`.
  enum class Kind : uint8_t { Cpu, Cuda };
  /// Architectures: x86-64 by the levels of its psABI, NVIDIA's GPUs by compute capability. Emulated: GPU code whose
  /// threads a CPU runs one by one, for tests without a GPU.
  enum class Arch : uint8_t { X86_64, X86_64_v2, X86_64_v3, X86_64_v4, Sm80, Sm90, Sm100, Emulated };
  using enum Arch;

  Arch arch;

  constexpr Target(Arch arch) : arch(arch) {}
  constexpr bool operator==(const Target &) const = default;

  constexpr Kind kind() const { return arch < Sm80 ? Kind::Cpu : Kind::Cuda; }
  constexpr bool gpu() const { return kind() == Kind::Cuda; }
  /// "x86-64-v4", "sm_90", "emulated".
  std::string text() const;
  /// Whether products of these half types are computed as such; otherwise they are computed in f32 and rounded.
  /// oneDNN 2.6 has products in bf16 from AVX-512 on, and none in fp16.
  constexpr bool multipliesBf16() const { return gpu() || arch == X86_64_v4; }
  constexpr bool multipliesFp16() const { return gpu(); }
  /// Whether this processor can run code for the target. False for GPUs.
  bool runsHere() const;

  /// The architecture with this name; nullopt if there is none.
  static std::optional<Target> named(const std::string &text);
  /// The targets of plans of this kind, except the emulated one.
  static std::vector<Target> all(Kind kind);
  /// Parses the value of --target. Throws userError if it is neither one of all(kind) nor, for GPUs, the emulated one.
  static Target parse(const std::string &text, Kind kind);
  /// Parses the value of --backend, "cpu" or "cuda"; empty: Cpu. Throws userError for another word.
  static Kind parseKind(const std::string &text);
};

/// "cpu" or "cuda".
const char *text(Target::Kind kind);

} // namespace cleave
