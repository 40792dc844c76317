// The implementation of Predictor, created by Trainer.
#pragma once
#include "cleave/Predictor.h"
#include "runtime/data/ValueCheck.h"
#include "runtime/session/Predict.h"

#include <string>
#include <vector>

namespace cleave {

struct Predictor::Impl {
  Prediction prediction;
  std::vector<ValueCheck> checks; ///< of the inputs

  Impl(std::shared_ptr<const PlanFile> plan, const RunOptions &options) : prediction(std::move(plan), options) {
    const DataSpec spec = DataSpec::of(prediction.plan());
    for (const DataField &field : prediction.inputs())
      checks.emplace_back(spec, field);
  }
};

/// The files for the outputs: the first is `file`, others are "p.1.npy", ... next to "p.npy".
std::vector<std::string> outputFiles(const std::string &file, size_t outputs);
/// Writes the outputs for a split of `source` as .npy files (outputFiles). Only rank 0 writes. Returns a summary as one
/// line of text or one JSON object.
std::string writePredictions(Prediction &prediction, const DataSource &source, Split split, const std::string &file,
                             bool json);

} // namespace cleave
