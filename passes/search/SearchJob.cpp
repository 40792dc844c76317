#include "passes/search/SearchJob.h"

#include "partitioner/cost/Constants.h"
#include "runtime/base/Error.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>
#include <utility>

namespace cleave::passes {

using partitioner::Decisions;

SearchJob::SearchJob(const Trace &trace, const PlanRequest &request, const partitioner::SpaceRequest &asked,
                     Stops stops)
    : trace(trace), request(request), asked(asked), pinned(asked.pins.decided()), cluster(*clusterOf(request)),
      stops(std::move(stops)), cache(request.searchCache ? request.searchCache : newSearchCache()) {
  constexpr unsigned mostWorkers = 4;
  Decisions pins; // what the models and the trial plans depend on, besides what the users of a cache have in common
  pins.shard = pinned.shard, pins.ops = pinned.ops, pins.recompute = pinned.recompute, pins.stages = pinned.stages;
  pins.scatterGather = pinned.scatterGather;
  const bool fused = std::ranges::all_of(cluster.devices, partitioner::attentionIsFused);
  if (std::string key = fmt::format("{} {} {} {} {}", text(request.backend), request.threads, fused, pins.toToml(),
                                    fmt::join(pinned.mesh.order, " "));
      cache->workers.empty() || cache->key != key) {
    *cache = SearchCache{.key = std::move(key)};
    cache->workers.resize(std::clamp(std::thread::hardware_concurrency(), 1u, mostWorkers));
  }
}

CompileOptions SearchJob::withBatch(int64_t batch) const {
  CompileOptions options = request;
  options.batch = batch;
  options.code = false;
  options.printAfter.clear();
  return options;
}

std::string SearchJob::devicesText() const {
  return fmt::format("{} devices of cluster {}", asked.devices, cluster.name);
}

std::string unlessRefused(const std::function<void()> &make) {
  try {
    make();
  } catch (const Error &error) {
    if (error.status != Status::User)
      throw;
    return error.what();
  }
  return {};
}

} // namespace cleave::passes
