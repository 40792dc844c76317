// The whole compiler as one function: a traced model and a strategy in, a plan's bytes out. No MLIR in this header.
#pragma once
#include "ir/GraphModule.h"
#include "partitioner/sharding/Problem.h"
#include "passes/CompileContext.h"
#include "passes/CompileOptions.h"

#include <cstdint>
#include <vector>

namespace cleave::passes {

/// The target of generated code: the requested one, or else this machine's processor, or for GPUs sm_90.
Target targetOf(const CompileOptions &options);

/// Runs every phase after tracing. Returns the sealed plan file. Throws cleave::Error.
///
/// Of a training, `model` holds @forward and @eval (GraphBase.td) and module attribute `cleave.optimizer`, a
/// dictionary: {name = "sgd"|"adam"|"adamw", lr, momentum, nesterov, weight_decay, beta1, beta2, eps, clip_norm}.
/// Of an evaluation the same; of a prediction it holds @forward as evaluation runs it, without the loss; its results
/// are f32, of kind "output". The plan then has only an evaluation list, whose Program.metrics contain the loss's terms
/// or the model's outputs; the batch of a prediction is one microbatch.
std::vector<uint8_t> compile(GraphModule model, const CompileOptions &options, const CompileContext &context = {});

/// The module after differentiation, simplification and decomposition: @train, @update, @eval on global shapes; of an
/// evaluation or prediction only @train, its forward pass.
GraphModule step(GraphModule model, const CompileOptions &options);

/// The training step as input of the choice of shardings, under the options' strategy with its rules about parameters
/// but without those about ops.
partitioner::ShardingProblem shardingProblem(GraphModule model, const CompileOptions &options,
                                             const CompileContext &context = {});

} // namespace cleave::passes
