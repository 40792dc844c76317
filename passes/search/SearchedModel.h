// What a search knows of a model before it splits it. No MLIR in this header.
#pragma once
#include "partitioner/search/Candidates.h"
#include "partitioner/search/SolveLayouts.h"
#include "partitioner/stages/LayerNames.h"
#include "passes/search/SearchJob.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::passes {

/// The models of a job with every kind of layer and few others, by their rows. They are kept in its cache.
class ReducedModels {
public:
  explicit ReducedModels(const SearchJob &job) : job(job) {}

  size_t workers() const { return job.cache->workers.size(); }
  /// That of a worker, because an MLIR context serves one compilation at a time; null if the model's code does not
  /// allow so many rows. Traces a new one, which runs the user's code.
  ReducedModel *withRows(int64_t rows, size_t worker = 0);
  /// Calls `work` with 0 to `count`-1 and the model with the rows of each, on several threads.
  void onWorkers(size_t count, const std::function<int64_t(size_t)> &rowsOf,
                 const std::function<void(size_t, const ReducedModel *)> &work);
  /// Few rows for what does not depend on them: those of a microbatch if the model's code fixes their number.
  int64_t fewRows();

private:
  const SearchJob &job;
};

struct SearchedModel {
  partitioner::Space space;
  std::vector<partitioner::SearchLayer> layers;
  std::vector<size_t> begins;                  ///< the first layer of each stage, if that is decided
  std::vector<partitioner::ModelLayer> solved; ///< the same layers for the solver
  std::vector<std::string> kept;               ///< layers of the reduced model
  partitioner::LayerNames names{{}};           ///< of these
  std::string last;                            ///< of these
  bool alikeAlongData = false;                 ///< what a layer does depends on its rows, not on the size of axis dp
  double least = 0;                            ///< seconds of an iteration's products at the peaks of all devices
  std::string largestPinned;                   ///< see NoneFits.h

  /// The layer of the reduced model for the path of a module.
  std::string layerOf(const std::string &path) const { return path == "loss" ? last : names.of(path); }
};

/// Throws userError for what is asked and does not suit the model, and Stopped.
SearchedModel readModel(const SearchJob &job, ReducedModels &models);

} // namespace cleave::passes
