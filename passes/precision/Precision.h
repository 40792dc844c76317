// Mixed precision: element types of the traced model, by the levels that Apex made known (Micikevicius et al. 2018;
// NVIDIA Apex `amp`).
//
//   O0  everything f32.
//   O1  matrix products, convolutions and attention in the half type; reductions, softmax, normalisation, exp, log,
//   pow,
//       rsqrt and losses in f32; all else in the widest type of its operands. Parameters, constants and what is made of
//       them alone give way to the other operand.
//   O2  inputs and activations in the half type. Normalisation takes them so and computes in f32 with f32 parameters,
//       statistics and running averages; reductions and softmax compute in f32, and what follows from them stays f32
//       until it meets a half; parameters are f32 and cast where they are used; the loss is f32.
//   O3  as O2, with parameters stored in the half type as well: no f32 copy is kept.
//
// Integers that are cast to f32 stay f32 at every level: they are counts or positions, for which a half type has no room.
// Gradients follow by differentiation of the casts: those of f32 parameters are f32.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

struct PrecisionOptions {
  std::string half = "bf16"; ///< "bf16" or "fp16"
  int64_t level = 0;         ///< 0 to 3
};

/// No loss scale is larger: 2^24.
inline constexpr double largestLossScale = 16777216;

/// Rewrites @forward and @eval as traced. Types of inputs, buffers and results stay as they are.
void applyPrecision(mlir::ModuleOp module, const PrecisionOptions &options);

/// The same as `--precision=level=1 half=bf16`.
std::unique_ptr<mlir::Pass> createPrecisionPass();

} // namespace cleave::passes
