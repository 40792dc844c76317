// Applies a strategy to a step: deterministic, for any valid strategy from any source.
#pragma once
#include "partitioner/apply/Applied.h"
#include "partitioner/sharding/Assign.h"

namespace cleave::partitioner {

/// Converts a differentiated, decomposed step (@train, @update, @eval; cleave.stage on every op of @train and @eval,
/// see assignStages) to local programs with explicit collectives, messages and schedules. Brings `step` to the
/// annotated phase: shardings on every value. Throws userError if the model cannot satisfy the strategy.
Applied apply(mlir::OwningOpRef<mlir::ModuleOp> &step, const Strategy &strategy);

/// Only brings the step to the annotated phase; returns the shardings of parameters and buffers. Throws userError for a
/// rule that matches no tensor.
NamedShardings annotate(mlir::ModuleOp step, const Strategy &strategy);

/// Gives a parameter used in several stages one gradient result per stage (cleave.stage on the result). The sum over
/// stages then is a reduction of gradients instead of messages with activations.
void splitTiedGradients(mlir::func::FuncOp train);

/// Makes the backward pass read a copy of a buffer that the forward pass changes, because this or the next microbatch
/// will have overwritten the buffer by then.
void keepChangedBuffers(mlir::func::FuncOp train);

/// In an annotated @train, computes sums over dp within a gradient in `element` and casts the result back.
void setTypeOfGradientSums(mlir::func::FuncOp train, mlir::Type element, const Mesh &mesh);

} // namespace cleave::partitioner
