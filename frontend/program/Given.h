// Options that are given again beside a plan or a checkpoint must agree with it.
#pragma once
#include "cleave/Trainer.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/Agreement.h"

namespace cleave {

/// Throws userError naming the first option that disagrees with the plan and both values.
void checkAgainstPlan(const PlanFile &plan, const Model &model, const TrainConfig &config, const RunOptions &options);

/// Fills the options that decide what the step computes as the plan has them: batch, microbatches, seed, optimizer,
/// mesh.
void takeFromPlan(const PlanFile &plan, RunOptions &options);

/// What a stored training (of a plan or checkpoint) says of its precision, as the options would.
struct StoredPrecision {
  std::string type = "fp32", optLevel = "O0", lossScale = "none", reduceDtype = "fp32";
};
StoredPrecision storedPrecision(const std::string &training);

/// The precision of a stored training, where the options name none.
void takePrecision(const std::string &training, RunOptions &options);

/// Fills the options that were not given as the training that is resumed had them: batch, microbatches, seed,
/// optimizer.
void takeFromCheckpoint(const CheckpointInfo &info, RunOptions &options);

/// What all ranks of a job must have been given: the program's options and the model's. Paths may differ from host to
/// host; what they lead to may not.
GivenValues givenValues(const Model &model, const RunOptions &options);

} // namespace cleave
