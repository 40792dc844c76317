// What several searches for plans of one model have in common.
#pragma once
#include "partitioner/search/Space.h"
#include "partitioner/stages/DistinctLayers.h"
#include "passes/fuse/KernelCostTable.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/plan/PlanFile.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave::passes {

/// A model with few rows that has every kind of layer.
struct ReducedModel {
  GraphModule model;
  std::vector<partitioner::LayerOutline> layers;
};

/// What trial plans differ in.
struct TrialChoice {
  partitioner::SplitChoice split;
  bool replicasApart = false; ///< CompileContext::replicasApart
  auto operator<=>(const TrialChoice &) const = default;
};

struct SearchCache {
  std::string key; ///< for what all of this was made: kind of devices, and what the request asks of the layers
  std::shared_ptr<KernelCostTable> kernelCosts = std::make_shared<KernelCostTable>();
  std::vector<std::map<int64_t, std::optional<ReducedModel>>> workers; ///< models by rows, of each thread
  std::map<TrialChoice, std::shared_ptr<const PlanFile>> trials;
  std::map<std::string, std::shared_ptr<const PlanFile>> finalists; ///< plans of the whole model, by keyOf()
};

} // namespace cleave::passes
