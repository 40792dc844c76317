// Compiles and runs predictions.
#include "tests/random/Predict.h"
#include "frontend/program/ResolvedOptions.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/stages/Layers.h"
#include "passes/pipeline/Phases.h"
#include "runtime/base/Error.h"
#include "runtime/plan/check/Check.h"
#include "runtime/session/Predict.h"
#include "tests/random/Instance.h"
#include "tests/random/Refusals.h"

#include <algorithm>

namespace cleave::random_models {

namespace {

GraphModule traced(const Recipe &recipe, const TrainConfig &config, bool marks) {
  Instance root(recipe, 0, marks);
  return tracePrediction(modelOf(root), config, recipe.rows());
}

/// Whether a prediction on the case's mesh is refused for a true reason. Layers that serve only the loss or the training
/// do not occur in it.
bool rightlyRefused(const Recipe &recipe, const TrainConfig &config, const std::string &message) {
  const GraphModule graph = traced(recipe, config, true);
  auto forward = llvm::cast<mlir::func::FuncOp>(graph.function("forward"));
  const auto layers = partitioner::layersOf(forward, partitioner::layerNames(forward));
  if (message.find("asks for more stages than the model's") != std::string::npos)
    return partitioner::parseMesh(recipe.mesh).size("pp") >
           std::count_if(layers.begin(), layers.end(), [](const partitioner::Layer &layer) { return layer.parameters; });
  if (message.find("splits no tensor of the model") != std::string::npos) // a mark may be for the training alone
    return !marksThatMatterSplit(graph, "tp");
  Recipe bare = recipe;
  bare.virtualStages = 1;
  bare.stagesAndShards.clear();
  return !trueReason(bare, message).empty();
}

} // namespace

PredictionCase::PredictionCase(const Recipe &recipe, const TrainConfig &config, bool code) : recipe(recipe) {
  const bool marked = !stagesOfMarks(recipe).empty() && *stagesOfMarks(recipe).rbegin() > 0;
  if (!marked || recipe.virtualStages == 1)
    try {
      apply(config, recipe.mesh, code);
      return;
    } catch (const Error &error) {
      if (error.status != Status::User || !rightlyRefused(recipe, config, error.what()))
        throw;
    }
  apply(config, "dp=1", code);
}

void PredictionCase::apply(TrainConfig config, const std::string &mesh, bool code) {
  config.evalBatch = 0;
  RunOptions run;
  run.mesh = mesh;
  run.microbatches = 1;
  run.batch = recipe.rows();
  run.threads = 1;
  run.seed = runSeed;
  run.precision = recipe.precision == "fp32" ? "" : recipe.precision;
  run.optLevel = recipe.optLevel;
  run.layout = recipe.layout;
  run.winograd = recipe.winograd();
  options = resolveOptions(config, run);
  options.code = code;
  options.model = "random";
  options.purpose = passes::Purpose::Prediction;
  applied.reset();
  model.emplace(traced(recipe, config, true));
  applied.emplace(passes::applyStrategy(*model, options));
}

ir::Slots PredictionCase::interpreted(const Whole &whole, const ir::Slots &state) const {
  const ir::DistributedProgram program = programOf(*applied, true);
  return predictedOutputs(recipe, whole.predictedSamples(), [&](int64_t first, int64_t count) {
    ir::Slots given = state;
    readAverages(given);
    whole.addPrediction(given, first, count);
    ir::Slots batch;
    for (const ir::Slots &rank : ir::runDistributed(program, ir::scatterSlots(program, given),
                                                    predictionContext(recipe, first, count)))
      for (const auto &[key, tensor] : rank)
        if (key.kind == ir::SlotKind::Output && !batch.try_emplace(key, tensor).second && !(batch.at(key) == tensor))
          throw Error(Status::Internal, "ranks differ in " + key.name);
    return batch;
  });
}

std::vector<std::string> PredictionCase::defects() {
  file = PlanFile::fromBytes(passes::lowerToPlan(*applied, options), "the prediction");
  return checkPlan(file->plan());
}

ir::Slots PredictionCase::executed(const HashedData &data, int64_t samples, const std::string &checkpoint) const {
  if (samples == 0)
    return {};
  Prediction prediction(file, {.threads = 1, .checkpoint = checkpoint, .timeout = 20});
  std::vector<std::vector<double>> values(prediction.outputs().size());
  prediction.run(data, Split::Eval, 0, samples, [&](size_t output, std::span<const float> rows) {
    values[output].insert(values[output].end(), rows.begin(), rows.end());
  });
  ir::Slots outputs;
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<int64_t> shape = prediction.outputs()[i].shape;
    shape.insert(shape.begin(), static_cast<int64_t>(values[i].size()) / prediction.outputs()[i].elements());
    outputs[{ir::SlotKind::Output, prediction.outputs()[i].name}] = ir::HostTensor(shape, DType::F32, values[i]);
  }
  return outputs;
}

GraphModule predictionStep(const Recipe &recipe, const TrainConfig &config, passes::CompileOptions undivided) {
  undivided.batch = recipe.rows();
  undivided.strategy.microbatches = 1;
  undivided.evalBatch = 0;
  undivided.purpose = passes::Purpose::Prediction;
  return passes::step(traced(recipe, config, false), undivided);
}

} // namespace cleave::random_models
