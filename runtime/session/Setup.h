// Preparation of a job before its ranks start: data set, executor options, and checks that the options fit the plan.
#pragma once
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/data/DataState.h"
#include "runtime/data/PictureSource.h"
#include "runtime/session/Metrics.h"
#include "runtime/session/Session.h"

#include <memory>

namespace cleave {

struct OpenedData {
  std::unique_ptr<DataSource> owned;
  const DataSource *source = nullptr;
  const PictureSource *pictures = nullptr; ///< `source`, if it is one of pictures
};

/// Opens the data set of a plan at RunOptions::data: synthetic if requested, else the program's own, else the built-in
/// one of the plan's kind. Rank 0 checks that the data set is a function (DataFunction.h). A checkpoint that is read
/// must have been trained on the same classes.
OpenedData openPlanData(const plan::Plan &plan, const RunOptions &options, const DataSource *custom,
                        DataNeeds needs = {});

/// Threads of a rank that read data.
unsigned workersOf(const RunOptions &options);

ExecutorOptions executorOptions(const plan::Plan &plan, const RunOptions &options, unsigned rank);

/// Throws userError if the plan has no train program.
void requireTraining(const plan::Plan &plan, const std::string &name);

/// Throws userError that names the user's line if evaluation (`predicts`: the prediction that is the plan) combines the
/// samples of a batch (combinesSamples), and its batches do not divide `samples`: the last batch would combine repeated
/// samples (EvalBatches.h).
void requireWholeBatches(const plan::Plan &plan, int64_t samples, bool predicts = false);

/// Where the data go on after the checkpoint. If the training data are not those that it was trained on, throws
/// userError that names the difference, or, with --new-data, begins an epoch with them and says so. Warns of other
/// evaluation data.
DataPosition resumedPosition(const CheckpointInfo &info, const DataState &data, const RunOptions &options);

/// Checks that the checkpoint belongs to this run: throws userError that names both values if model or seed differ.
void checkResume(const CheckpointInfo &info, const plan::Plan &plan, const std::string &folder);

/// The checkpoint folder from the options; an empty path: none.
CheckpointFolder checkpointFolder(const RunOptions &options);

/// Creates the checkpoint folder before training; throws userError that names it if that fails, or if it holds a
/// checkpoint that this training must not replace.
void prepareCheckpointFolder(const RunOptions &options);

/// The first record of the metrics file.
RunRecord describeRun(const PlanFile &plan);

} // namespace cleave
