// Predicts with a case's model, as `PROGRAM predict` does: on the case's mesh, in batches of a microbatch.
#pragma once
#include "ir/interpreter/Distributed.h"
#include "partitioner/apply/LocalPrograms.h"
#include "runtime/plan/PlanFile.h"
#include "tests/random/Numbers.h"
#include "tests/random/Run.h"

#include <memory>

namespace cleave::random_models {

class PredictionCase {
public:
  /// Compiles the prediction up to its local programs. On one rank if the case's mesh is refused for a true reason: a
  /// prediction has no loss, and takes no stages or shardings from a file. Throws Error for any other refusal.
  PredictionCase(const Recipe &recipe, const TrainConfig &config, bool code);

  /// The outputs of the ranks in the interpreter. `state`: the whole parameters and buffers.
  ir::Slots interpreted(const Whole &whole, const ir::Slots &state) const;
  /// Compiles the plan. Returns the checker's defects.
  std::vector<std::string> defects();
  /// The outputs of the plan for the first `samples` of evaluation, with the values of a checkpoint.
  ir::Slots executed(const HashedData &data, int64_t samples, const std::string &checkpoint) const;

private:
  void apply(TrainConfig config, const std::string &mesh, bool code);

  const Recipe &recipe;
  std::optional<GraphModule> model; ///< declared first: `applied` uses its context
  std::optional<partitioner::LocalPrograms> applied;
  passes::CompileOptions options;
  std::shared_ptr<const PlanFile> file;
};

/// The step of the prediction before partitioning.
GraphModule predictionStep(const Recipe &recipe, const TrainConfig &config, passes::CompileOptions undivided);

} // namespace cleave::random_models
