// What a job needs before its ranks start: its data set, executor options, and checks that what was asked fits the
// plan.
#pragma once
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/data/DataSource.h"
#include "runtime/session/Metrics.h"
#include "runtime/session/Session.h"

#include <memory>

namespace cleave {

struct OpenedData {
  std::unique_ptr<DataSource> owned;
  const DataSource *source = nullptr;
};

/// The data set a plan runs on: synthetic when asked for, else the program's own, else the built-in one of the plan's
/// kind.
OpenedData openPlanData(const plan::Plan &plan, const std::string &where, const DataSource *custom,
                        DataNeeds needs = {});

ExecutorOptions executorOptions(const plan::Plan &plan, const TrainOptions &options);

/// Throws userError when the plan has no train program.
void requireTraining(const plan::Plan &plan, const std::string &name);

/// A run continues only the run that was saved: throws userError naming both values where model or seed differ.
void checkResume(const CheckpointInfo &info, const plan::Plan &plan, const std::string &folder);

/// The checkpoint's folder as the options say; an empty path: none.
CheckpointFolder checkpointFolder(const TrainOptions &options);

/// Makes the checkpoint's folder before hours of training; throws userError naming it where that cannot be done, or where
/// it holds a checkpoint that this training must not replace.
void prepareCheckpointFolder(const TrainOptions &options);

/// The first record of the metrics file.
RunRecord describeRun(const PlanFile &plan, const TrainOptions &options);

} // namespace cleave
