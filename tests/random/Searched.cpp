// Calls the search as the command line does, for processors.
#include "tests/random/Searched.h"

#include "frontend/program/ResolvedOptions.h"
#include "frontend/trace/TraceModel.h"
#include "partitioner/strategy/Decisions.h"
#include "passes/search/StrategySearch.h"
#include "tests/random/Instance.h"
#include "tests/random/Run.h"

#include <fmt/format.h>

namespace cleave::random_models {

namespace {

/// Nodes with a slow and a fast processor each; the last node may be half empty.
std::string mixedCluster(int64_t devices) {
  return fmt::format("name = \"mixed\"\n"
                     "[devices.slow]\nbackend = \"cpu\"\nmemory_gib = 4.0\nmemory_gb_per_s = 10.0\n"
                     "peak_tflops = {{ fp32 = 0.05, fp16 = 0.05, bf16 = 0.05 }}\n"
                     "[devices.fast]\nbackend = \"cpu\"\nmemory_gib = 4.0\nmemory_gb_per_s = 40.0\n"
                     "peak_tflops = {{ fp32 = 0.2, fp16 = 0.2, bf16 = 0.2 }}\n"
                     "[[nodes]]\ncount = {}\ndevices = {{ slow = 1, fast = 1 }}\n"
                     "inside = {{ gb_per_s = 5.0, latency_us = 5.0 }}\n"
                     "[network]\ngb_per_s_per_node = 1.0\nlatency_us = 20.0\n",
                     (devices + 1) / 2 + 1);
}

} // namespace

Recipe withFoundStrategy(const Recipe &recipe) {
  const TrainConfig config = configOf(recipe);
  RunOptions options = optionsFor(recipe);
  options.devices = partitioner::parseMesh(recipe.mesh).ranks();
  options.mesh.clear(), options.schedule.clear();
  options.strategy = "auto";
  options.virtualStages.reset(), options.zero.reset();
  options.sequenceParallel = false;
  ResolvedOptions job = resolveOptions(config, options);
  job.toSearch->pins = partitioner::Strategy::parse(recipe.stagesAndShards, "strategy.toml").with(job.toSearch->pins);
  if (recipe.searched == "mixed")
    job.cluster = partitioner::ClusterFile::parse(mixedCluster(options.devices), "the cluster");
  const passes::Trace trace = [&](int64_t rows, int64_t evalRows) {
    Instance root(recipe, 0, true);
    TrainConfig rowsOf = config;
    rowsOf.batch = recipe.batch;
    return traceModel(modelOf(root), rowsOf, rows, evalRows);
  };
  const partitioner::Decisions strategy = passes::searchStrategy(trace, job).strategy;
  Recipe found = recipe;
  found.mesh = partitioner::meshText(strategy.mesh);
  found.schedule = strategy.schedule, found.virtualStages = strategy.chunks;
  found.sequence = !strategy.sequence.empty(), found.zero = strategy.zero;
  found.found = strategy.toToml();
  return found;
}

} // namespace cleave::random_models
