// What all parts of a search read. No MLIR in this header.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/search/SearchCache.h"
#include "passes/search/StrategySearch.h"

#include <functional>
#include <string>

namespace cleave::passes {

struct SearchJob {
  /// `asked`: what is open. `trace` and `request` must outlive the job.
  SearchJob(const Trace &trace, const PlanRequest &request, const partitioner::SpaceRequest &asked, Stops stops);

  const Trace &trace;
  const PlanRequest &request;
  const partitioner::SpaceRequest asked;
  const partitioner::Decisions pinned; ///< of `asked`
  const partitioner::Cluster cluster;  ///< see clusterOf
  const Stops stops;
  const std::shared_ptr<SearchCache> cache;

  /// The options of plans that are compiled for their costs.
  CompileOptions withBatch(int64_t batch) const;
  CompileContext context() const { return {.stops = stops, .kernelCosts = cache->kernelCosts}; }
  /// "8 devices of cluster two-nodes"
  std::string devicesText() const;
};

/// Calls `make`; the message if the model cannot be made or split so, else nothing.
std::string unlessRefused(const std::function<void()> &make);

} // namespace cleave::passes
