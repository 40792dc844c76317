// Checks that command line options agree with a given plan or checkpoint.
#pragma once
#include "cleave/Trainer.h"
#include "runtime/checkpoint/Manifest.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/session/Agreement.h"

namespace cleave {

/// Throws userError naming the first option that disagrees with the plan and both values.
void checkAgainstPlan(const PlanFile &plan, const Model &model, const RunOptions &options);

/// Sets the options that determine the step's computation to the plan's values: batch, microbatches, seed, optimizer,
/// mesh.
void takeFromPlan(const PlanFile &plan, RunOptions &options);

/// Sets options that were not given to those with which the plan of RunOptions::like was made. The split and the
/// cluster are left to resolveOptions(). Throws userError if the plan is of another model.
void takeFromLike(const Model &model, RunOptions &options);

/// Takes the transforms of evaluation, and the classes if no others are known, from a checkpoint's data. Warns if the
/// program's transforms are others.
void takeTransforms(const std::string &stored, plan::DataT &data);

/// Sets options that were not given to the values of the checkpoint's training, for whatever reads the checkpoint:
/// batch, microbatches, seed, precision (a checkpoint of O3 stores half parameters), optimizer, averages of parameters.
void takeFromCheckpoint(const CheckpointInfo &info, RunOptions &options);

/// The values that must be equal on all ranks of a job: the program's options and the model's. Paths may differ between
/// hosts, but not the contents that they refer to.
ValuesToAgree valuesToAgree(const Model &model, const RunOptions &options);

} // namespace cleave
