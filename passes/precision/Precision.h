// Mixed precision: element types of the traced model, by the levels of NVIDIA Apex `amp` (Micikevicius et al. 2018).
//
//   O0  everything f32.
//   O1  matrix products, convolutions and attention in the half type; reductions, softmax, normalisation, exp, log,
//       pow, rsqrt and losses in f32; all other ops in the widest type of their operands. Parameters, constants and
//       values computed only from them take the type of the other operand.
//   O2  inputs and activations in the half type. Normalisation takes half inputs but computes in f32 with f32
//       parameters, statistics and running averages; reductions and softmax compute in f32, and values computed from
//       them stay f32 until an op combines them with a half value; parameters are f32 and cast at their use; the loss
//       is f32.
//   O3  as O2, with parameters also stored in the half type: there is no f32 copy.
//
// Integers cast to f32 stay f32 at every level: they are counts or positions, which exceed the range of half types.
// Gradients follow by differentiating the casts: those of f32 parameters are f32.
#pragma once
#include "runtime/base/Precision.h"

#include <cstdint>
#include <memory>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace cleave::passes {

/// Rewrites @forward and @eval as traced for a half type and a level from 0 to 3. Types of inputs, buffers and results
/// stay as they are.
void applyPrecision(mlir::ModuleOp module, Precision::Type half, int64_t level);

// The pass and its options: passes/Passes.td.
#define GEN_PASS_DECL_PRECISIONPASS
#include "passes/Passes.h.inc"

} // namespace cleave::passes
