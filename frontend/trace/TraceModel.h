// Traces a model into the graph dialect: @forward for training, @eval for evaluation, and the optimizer as an
// attribute.
#pragma once
#include "cleave/Trainer.h"
#include "ir/GraphModule.h"

namespace cleave {

/// The fields a data set gives a model, in order; the last ones (TrainConfig::targets) are what the loss compares with.
std::vector<DataField> fieldsOf(const Data &data);

/// The module of a model whose functions see `rows` samples: one microbatch. `config.optimizer`, `clipNorm` and
/// `groups` become attributes (passes/pipeline/Pipeline.h lists them). Throws a user error for mistakes in the model.
GraphModule traceModel(const Model &model, const TrainConfig &config, int64_t rows);

/// The module of a prediction: @forward as evaluation runs it, without the loss and what it compares with. Its results
/// are f32, of kind "output", named "output", "output.1", ...; their first dimension is `rows`.
GraphModule tracePrediction(const Model &model, const TrainConfig &config, int64_t rows);

/// Throws a user error at the largest parameter where all of them together take more than `most` bytes in f32;
/// `holder`: what has no more.
void requireParametersWithin(const Module &root, double most, const std::string &holder);

/// "sgd", "adam" or "adamw".
std::string optimizerName(const Optimizer &optimizer);
double learningRate(const Optimizer &optimizer);
double weightDecay(const Optimizer &optimizer);

} // namespace cleave
