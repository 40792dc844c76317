// What a search asks about a model on a cluster. Tests answer with formulas.
#pragma once
#include "partitioner/pipeline/Simulate.h"
#include "partitioner/search/LayerCosts.h"
#include "partitioner/search/Space.h"

#include <utility>
#include <vector>

namespace cleave::partitioner {

/// The number of a site: devices that work together, up to their numbers in the cluster.
using Site = size_t;

/// Where the ranks of plans lie, as far as their costs depend on it, and what they send each other there.
class RankPlaces {
public:
  virtual ~RankPlaces() = default;
  /// Of each position of the pipeline: the site of its ranks. One entry for all positions if there is one kind of
  /// devices.
  virtual const std::vector<Site> &positions(const PlanGroup &group) = 0;
  /// The same for the ranks of one group along axis tp of `tensor` ranks, 1 or the group's: a site for each kind of
  /// device at the position.
  virtual const std::vector<std::vector<Site>> &parts(const PlanGroup &group, int64_t tensor) = 0;
  /// The orders of the axes of a mesh to choose from; the mesh itself first.
  virtual std::vector<Mesh> orders(const Mesh &mesh) const = 0;
  /// Seconds of the messages from the ranks of one position of the pipeline to those of another, which all ranks send
  /// at the same time: of `bytes` for each group along axis tp.
  virtual double sendSeconds(const PlanGroup &group, int64_t from, int64_t to, double bytes) = 0;
  /// Seconds in which the ranks of axis dp sum gradients of `bytes` on each rank, at the first position of the
  /// pipeline; `scatters`: each rank gets only its share of the sums.
  virtual double sumSeconds(const PlanGroup &group, double bytes, bool scatters) = 0;
  /// Seconds in which ranks of several positions of the pipeline sum a gradient of `bytes` on each of them.
  virtual double tiedSeconds(const PlanGroup &group, const std::vector<int64_t> &positions, double bytes) = 0;
  /// Seconds in which all ranks sum the metrics.
  virtual double metricsSeconds() = 0;
  /// The links of nodes to the network, as far as messages between neighbouring positions of the pipeline take them. Of
  /// links with the same messages there is one.
  virtual const SharedLinks &sharedLinks(const PlanGroup &group) = 0;
};

/// The costs of a model's layers in plans of one stage.
class SplitCosts {
public:
  virtual ~SplitCosts() = default;
  /// Whether the model can have so many rows; its code may fix their number.
  virtual bool takesRows(int64_t rows) = 0;
  /// The costs under a split at a site; null if the model cannot be split so. They stay where they are.
  virtual const SiteCosts *of(const SplitChoice &split, Site site) = 0;
  /// What is compiled to measure a split; splits with the same one are measured at the cost of one.
  virtual SplitChoice trialOf(const SplitChoice &split) = 0;
  using Wanted = std::pair<SplitChoice, Site>;
  /// Says that plans are of no interest that take at least so many seconds: shardings need not be solved that promise
  /// no better.
  virtual void lookBelow(double) {}
  /// Called before several are asked for, so that they are measured at the same time.
  virtual void prepare(const std::vector<Wanted> &wanted) = 0;
};

} // namespace cleave::partitioner
