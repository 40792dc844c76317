#include "partitioner/search/ScaledCosts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cleave::partitioner {

SiteCosts withZero(SiteCosts site, int64_t zero, int64_t data) {
  const auto divide = [&](double &bytes, int64_t from) {
    if (zero >= from)
      bytes /= static_cast<double>(data);
  };
  for (KindCosts &kind : site)
    for (auto &[path, layer] : kind.costs.layers) {
      divide(layer.states, 1);
      divide(layer.gradients, 2);
      divide(layer.parameters, 3);
      if (zero >= 3)
        layer.copies = 0;
    }
  return site;
}

SiteCosts withRows(SiteCosts site, double share, double slack) {
  for (KindCosts &kind : site) {
    kind.costs.others *= slack * share;
    for (auto &[path, layer] : kind.costs.layers) {
      const double forward = layer.forwardFixed, backward = layer.backwardFixed;
      for (const auto &[amount, fixed] : {std::pair(&LayerCost::forward, forward),
                                          {&LayerCost::backward, backward},
                                          {&LayerCost::forwardWork, forward},
                                          {&LayerCost::backwardWork, backward},
                                          {&LayerCost::weightGradient, 0.0},
                                          {&LayerCost::hidden, 0.0},
                                          {&LayerCost::kept, 0.0},
                                          {&LayerCost::keptGradients, 0.0},
                                          {&LayerCost::scores, 0.0}})
        layer.*amount = slack * std::lerp(std::min(fixed, layer.*amount), layer.*amount, share);
    }
  }
  return site;
}

SiteCosts withEndsOf(SiteCosts passes, const SiteCosts &ends) {
  for (size_t kind = 0; kind < passes.size(); ++kind) {
    PlanCosts &costs = passes[kind].costs;
    const PlanCosts &other = ends[kind].costs;
    costs.groups = other.groups, costs.metrics = other.metrics;
    costs.beginOthers = other.beginOthers, costs.endOthers = other.endOthers;
    for (auto &[path, layer] : costs.layers) {
      const LayerCost &same = other.layers.at(path);
      layer.gathers = same.gathers, layer.sums = same.sums, layer.buckets = same.buckets;
    }
  }
  return passes;
}

} // namespace cleave::partitioner
