// Compiles and runs evaluations and predictions.
#include "tests/random/Forward.h"
#include "frontend/program/ResolvedOptions.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/stages/Layers.h"
#include "passes/pipeline/Phases.h"
#include "runtime/base/Error.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/session/Predict.h"
#include "tests/random/Instance.h"
#include "tests/random/Refusals.h"

#include <algorithm>

namespace cleave::random_models {

static GraphModule tracedPrediction(const Recipe &recipe, const TrainConfig &config, bool marks) {
  Instance root(recipe, 0, marks);
  return tracePrediction(modelOf(root), config, recipe.rows());
}

GraphModule ForwardCase::traced(const TrainConfig &config, bool marks) const {
  if (predicts())
    return tracedPrediction(recipe, config, marks);
  Instance root(recipe, 0, marks);
  const int64_t rows = recipe.evalBatch / recipe.microbatches;
  return traceModel(modelOf(root), config, rows, rows);
}

/// Whether the plan on the case's mesh is refused for a true reason. Layers that serve only the loss or the training do
/// not occur in a prediction.
bool ForwardCase::rightlyRefused(const TrainConfig &config, const std::string &message) const {
  const GraphModule graph = traced(config, true);
  auto forward = llvm::cast<mlir::func::FuncOp>(graph.function("forward"));
  const auto layers = partitioner::layersOf(forward, partitioner::layerNames(forward));
  if (message.find("asks for more stages than the model's") != std::string::npos &&
      partitioner::parseMesh(recipe.mesh).size("pp") >
          std::count_if(layers.begin(), layers.end(), [](const partitioner::Layer &layer) { return layer.parameters; }))
    return true;
  if (message.find("splits no tensor of the model") != std::string::npos) // a mark may be for the training alone
    return !marksThatMatterSplit(graph, "tp", false);
  Recipe bare = recipe;
  bare.virtualStages = 1;
  bare.stagesAndShards.clear();
  return !trueReason(bare, message).empty();
}

ForwardCase::ForwardCase(const Recipe &recipe, const TrainConfig &config, passes::Purpose purpose, bool code)
    : recipe(recipe) {
  options.purpose = purpose;
  const bool marked = !stagesOfMarks(recipe).empty() && *stagesOfMarks(recipe).rbegin() > 0;
  if (!marked || recipe.virtualStages == 1)
    try {
      apply(config, recipe.mesh, code);
      return;
    } catch (const Error &error) {
      if (error.status != Status::User || !rightlyRefused(config, error.what()))
        throw;
    }
  apply(config, "dp=1", code);
}

void ForwardCase::apply(const TrainConfig &config, const std::string &mesh, bool code) {
  const passes::Purpose purpose = options.purpose;
  TrainConfig own = config;
  own.evalBatch = 0;
  RunOptions run;
  run.mesh = mesh;
  run.microbatches = predicts() ? 1 : recipe.microbatches;
  run.batch = predicts() ? recipe.rows() : recipe.evalBatch;
  run.threads = 1;
  run.seed = runSeed;
  run.precision = recipe.precision == "fp32" ? "" : recipe.precision;
  run.optLevel = recipe.optLevel;
  run.layout = recipe.layout;
  run.winograd = recipe.winograd();
  options = resolveOptions(own, run, purpose);
  options.code = code;
  options.model = "random";
  applied.reset();
  model.emplace(traced(config, true));
  applied.emplace(passes::applyStrategy(*model, options));
}

ir::Slots ForwardCase::interpreted(const Whole &whole, const ir::Slots &state) const {
  const ir::DistributedProgram program = programOf(*applied, true);
  const auto batch = [&](ir::Slots given, const ir::Context &context) {
    ir::Slots found;
    for (const ir::Slots &rank : ir::runDistributed(program, ir::scatterSlots(program, given), context))
      for (const auto &[key, tensor] : rank)
        if (key.kind == (predicts() ? ir::SlotKind::Output : ir::SlotKind::Metric) &&
            !found.try_emplace(key, tensor).second && predicts() && !(found.at(key) == tensor))
          throw Error(Status::Internal, "ranks differ in " + key.name);
    return found;
  };
  ir::Slots given = state;
  readAverages(given);
  if (predicts())
    return predictedOutputs(recipe, whole.predictedSamples(), [&](int64_t first, int64_t count) {
      ir::Slots inputs = given;
      whole.addPrediction(inputs, first, count);
      return batch(std::move(inputs), predictionContext(recipe, first, count));
    });
  whole.addEvaluation(given);
  ir::Slots sums;
  for (const auto &[key, tensor] : batch(std::move(given), evaluationContext(recipe)))
    sums.try_emplace(groupKey(firstBatch, key.name), tensor);
  return sums;
}

std::vector<std::string> ForwardCase::defects() {
  file = PlanFile::fromBytes(passes::lowerToPlan(*applied, options), predicts() ? "the prediction" : "the evaluation");
  return checkPlan(file->plan());
}

ir::Slots ForwardCase::predicted(const HashedData &data, int64_t samples, const std::string &checkpoint) const {
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

LossSums ForwardCase::evaluated(const HashedData &data, const std::string &checkpoint) const {
  LocalWorld world(file->plan().ranks()->size());
  SampleOrder order(data.samples(Split::Train), runSeed);
  ExecutorOptions execution;
  execution.threads = 1;
  execution.timeoutSeconds = 20;
  const Manifest manifest = readManifest(checkpoint);
  LossSums sums;
  runRanks(world, [&](unsigned rank) {
    RankJob job(file, rank, world[rank], data, order, execution);
    loadCheckpoint(checkpoint, manifest, file->plan(), rank, LoadWhat::WhatIsRead,
                   [&](unsigned slot) { return job.executor().persistent(slot); });
    job.executor().writeBack();
    world[rank].barrier();
    const LossSums mine = job.evaluate(trainingSteps);
    if (rank == 0)
      sums = mine;
  });
  return sums;
}

GraphModule predictionStep(const Recipe &recipe, const TrainConfig &config, passes::CompileOptions undivided) {
  undivided.batch = recipe.rows();
  undivided.strategy.microbatches = 1;
  undivided.evalBatch = 0;
  undivided.purpose = passes::Purpose::Prediction;
  return passes::step(tracedPrediction(recipe, config, false), undivided);
}

} // namespace cleave::random_models
