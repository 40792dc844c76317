// Applies a strategy to a step: deterministic, for any valid strategy, whoever wrote it.
#pragma once
#include "partitioner/apply/Applied.h"
#include "partitioner/sharding/Assign.h"

namespace cleave::partitioner {

/// Takes a differentiated, decomposed step (@train, @update, @eval; cleave.stage on every op of @train and @eval, see
/// assignStages) and gives local programs with explicit collectives, messages and schedules. The module becomes the
/// annotated phase: shardings on every value. Throws userError for what the strategy asks and the model cannot have.
Applied apply(mlir::OwningOpRef<mlir::ModuleOp> &step, const Strategy &strategy);

/// The annotated phase alone; returns how parameters and buffers lie. Throws userError for a rule that no tensor
/// matches.
NamedShardings annotate(mlir::ModuleOp step, const Strategy &strategy);

/// Gives a parameter that several stages use one gradient result per stage (cleave.stage on the result), so that the
/// sum over stages becomes a reduction between them instead of activations' worth of messages.
void splitTiedGradients(mlir::func::FuncOp train);

/// Lets the backward pass read a copy of a buffer that the forward pass changes: the buffer itself is overwritten by
/// then, by this microbatch or by the next.
void keepChangedBuffers(mlir::func::FuncOp train);

/// Of an annotated @train: sums over dp that are part of a gradient are taken in `element` and cast back.
void setTypeOfGradientSums(mlir::func::FuncOp train, mlir::Type element, const Mesh &mesh);

} // namespace cleave::partitioner
