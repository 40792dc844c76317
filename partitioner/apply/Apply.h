// Applies a strategy to a step: deterministic, for any valid strategy from any source.
#pragma once
#include "partitioner/annotate/Annotate.h"
#include "partitioner/apply/Applied.h"

namespace cleave::partitioner {

/// A step (@train, @update, @eval of primitives; cleave.stage on every op of @train and @eval, see assignStages)
/// becomes annotated: every value has a sharding, misfits are resharded, and what ranks will sum is written as such.
/// Returns the strategy with a rule for every parameter and buffer. Throws userError for what the strategy asks and the
/// model cannot have.
Strategy annotateStep(mlir::ModuleOp step, const Strategy &strategy);

/// Local programs with explicit collectives, messages and schedules, of a step that annotateStep has annotated by
/// `strategy`, which it returned. Deterministic, for any valid strategy, whoever wrote it.
Applied apply(mlir::ModuleOp annotated, const Strategy &strategy);

/// Shardings alone; returns how parameters and buffers lie. Throws userError for a rule that no tensor matches.
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
