// What is done to a step (@train, @update, @eval of primitives; every op of @train and @eval has cleave.stage, see
// assignStages), in this order, before it is applied. (Zero.h comes between the functions.)
#pragma once
#include "partitioner/annotate/Annotate.h"

namespace cleave::partitioner {

/// Gives a parameter used in several stages one gradient result per stage (cleave.stage on the result). The sum over
/// stages then is a reduction of gradients instead of messages with activations.
void splitTiedGradients(mlir::func::FuncOp train);

/// Makes the backward pass read a copy of a buffer that the forward pass changes, because this or the next microbatch
/// will have overwritten the buffer by then.
void keepChangedBuffers(mlir::func::FuncOp train);

/// Throws userError if a rule of the strategy matches no parameter or buffer among the arguments of a function.
void checkRules(mlir::func::FuncOp function, const Decisions &strategy);

/// Gives every value of @train a sharding, inserts reshards where shardings differ, and marks partial sums. Returns the
/// shardings of parameters and buffers. Throws userError for a rule that no tensor matches or that the model does not
/// allow, and for an axis tp that splits nothing.
NamedShardings annotateTrain(mlir::ModuleOp step, const Decisions &strategy);

/// The same for the other functions. Parameters have the shardings `named`; in @update, those of `stored` (Zero.h).
void annotateOthers(mlir::ModuleOp step, const Decisions &strategy, NamedShardings &named,
                    const NamedShardings &stored);

/// In an annotated @train, computes the sums over dp that belong to a gradient in the type `cleave.reduce_dtype`, if
/// the module has it, and casts the results back.
void setTypeOfGradientSums(mlir::ModuleOp step, const Mesh &mesh);

} // namespace cleave::partitioner
