// Traces a model into the graph dialect: @forward for training, @eval for evaluation, and the optimizer as an
// attribute.
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"
#include "runtime/plan/PlanTypes.h"

namespace cleave {

/// The fields of a data set, in order; the loss receives the last ones (TrainConfig::targets).
std::vector<DataField> fieldsOf(const Data &data);

/// Traces a model to an IR module whose functions take `rows` samples, one microbatch; @eval takes `evalRows` unless
/// that is 0. A batch of training has `config.batch` samples. `config.optimizer`, `clipNorm` and `groups` become
/// attributes (listed in passes/pipeline/Pipeline.h). Mistakes in the model are user errors.
GraphModule traceModel(const Model &model, const TrainConfig &config, int64_t rows, int64_t evalRows = 0);

/// Traces a prediction: @forward in evaluation mode, without loss and targets. Its results are f32, of kind "output",
/// named "output", "output.1", ...: scalars, or tensors whose first dimension is `rows`.
GraphModule tracePrediction(const Model &model, const TrainConfig &config, int64_t rows);

/// Throws a user error that points at the largest parameter if all parameters together take more than `most` bytes in
/// f32. `holder` names the machine that has too little memory, for the message.
void requireParametersWithin(const Module &root, double most, const std::string &holder);

/// "sgd", "adam" or "adamw".
std::string optimizerName(const Optimizer &optimizer);
double learningRate(const Optimizer &optimizer);
/// The optimizer as plans store it.
plan::OptimizerT optimizerOf(const TrainConfig &config);

} // namespace cleave
