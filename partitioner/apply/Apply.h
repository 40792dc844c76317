// Applies a strategy to a step: deterministic, for any valid strategy from any source.
#pragma once
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/Applied.h"

namespace cleave::partitioner {

/// Annotates a step (@train, @update, @eval of primitives; every op of @train and @eval has cleave.stage, see
/// assignStages): gives every value a sharding, inserts reshards where shardings differ, and marks partial sums.
/// Returns the strategy with a rule for every parameter and buffer. Throws userError if the strategy asks for something
/// that the model does not allow.
Strategy annotateStep(mlir::ModuleOp step, const Strategy &strategy);

/// Emits local programs with explicit collectives, messages and schedules. `annotated` and `strategy` are the results
/// of annotateStep. Deterministic, for any valid strategy, whoever wrote it.
Applied apply(mlir::ModuleOp annotated, const Strategy &strategy);

/// Assigns only the shardings; returns those of parameters and buffers. Throws userError for a rule that no tensor
/// matches.
NamedShardings annotate(mlir::ModuleOp step, const Strategy &strategy);

/// Gives a parameter used in several stages one gradient result per stage (cleave.stage on the result). The sum over
/// stages then is a reduction of gradients instead of messages with activations.
void splitTiedGradients(mlir::func::FuncOp train);

/// Makes the backward pass read a copy of a buffer that the forward pass changes, because this or the next microbatch
/// will have overwritten the buffer by then.
void keepChangedBuffers(mlir::func::FuncOp train);

/// In an annotated @train, computes the sums over dp that belong to a gradient in type `element` and casts the results
/// back.
void setTypeOfGradientSums(mlir::func::FuncOp train, mlir::Type element, const Mesh &mesh);

} // namespace cleave::partitioner
