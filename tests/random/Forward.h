// Evaluates and predicts with a case's model, as `PROGRAM eval` and `PROGRAM predict` do: by plans without training on
// the case's mesh, in the case's batches of evaluation, or in batches of a microbatch.
#pragma once
#include "ir/interpreter/Distributed.h"
#include "partitioner/apply/LocalPrograms.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/RankJob.h"
#include "tests/random/Numbers.h"
#include "tests/random/Run.h"

#include <memory>

namespace cleave::random_models {

class ForwardCase {
public:
  /// Compiles the plan up to its local programs. On one rank if the case's mesh is refused for a true reason: it takes
  /// no stages or shardings from a file, and a prediction has no loss. Throws Error for any other refusal.
  ForwardCase(const Recipe &recipe, const TrainConfig &config, passes::Purpose purpose, bool code);

  /// The outputs of the ranks in the interpreter, or the sums of the first batch as group `firstBatch`. `state`: the
  /// whole parameters, buffers and averages.
  ir::Slots interpreted(const Whole &whole, const ir::Slots &state) const;
  /// Compiles the plan. Returns the checker's defects.
  std::vector<std::string> defects();
  /// The outputs of the plan for the first `samples` of evaluation, with the values of a checkpoint.
  ir::Slots predicted(const HashedData &data, int64_t samples, const std::string &checkpoint) const;
  /// The sums of an evaluation, with the values of a checkpoint.
  LossSums evaluated(const HashedData &data, const std::string &checkpoint) const;

private:
  GraphModule traced(const TrainConfig &config, bool marks) const;
  bool rightlyRefused(const TrainConfig &config, const std::string &message) const;
  void apply(const TrainConfig &config, const std::string &mesh, bool code);
  bool predicts() const { return options.purpose == passes::Purpose::Prediction; }

  const Recipe &recipe;
  std::optional<GraphModule> model; ///< declared first: `applied` uses its context
  std::optional<partitioner::LocalPrograms> applied;
  passes::CompileOptions options;
  std::shared_ptr<const PlanFile> file;
};

/// The step of the prediction before partitioning.
GraphModule predictionStep(const Recipe &recipe, const TrainConfig &config, passes::CompileOptions undivided);

} // namespace cleave::random_models
