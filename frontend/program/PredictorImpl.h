// What a Predictor holds, for Trainer, which makes it.
#pragma once
#include "cleave/Predictor.h"
#include "runtime/session/Predict.h"

namespace cleave {

struct Predictor::Impl {
  Prediction prediction;

  Impl(std::shared_ptr<const PlanFile> plan, const PredictOptions &options) : prediction(std::move(plan), options) {}
};

/// Writes the outputs for a split of `source` as .npy files: the first to `file`, others beside it ("p.1.npy" beside
/// "p.npy"). Rank 0 writes. Returns a line for people, or one JSON object, that says what was written.
std::string writePredictions(Prediction &prediction, const DataSource &source, Split split, const std::string &file,
                             bool json);

} // namespace cleave
