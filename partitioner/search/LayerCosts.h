// What each layer of a model takes on one rank: the costs from which a search composes plans. They are measured on a
// plan of a single stage, which has every kind of layer, so that they are those of the steps that a plan really has:
// fused kernels, library calls, and collectives as far as nothing hides them.
#pragma once
#include "partitioner/cluster/Cluster.h"
#include "partitioner/cost/Collectives.h"
#include "runtime/plan/PlanTypes.h"

#include <map>
#include <string>
#include <vector>

namespace cleave::partitioner {

/// A gradient that ranks sum after the last microbatch in buckets, each one message.
struct BucketedSum {
  size_t group = 0; ///< index of PlanCosts::groups
  double bytes = 0; ///< in the type of the sum
};

/// Seconds and bytes of one rank. Times are of one microbatch, from the end of the step before to the end of the
/// layer's last step, so that the layers of a stage add up to it.
struct LayerCost {
  double forward = 0, backward = 0;           ///< with the communication that other steps do not hide
  double forwardWork = 0, backwardWork = 0;   ///< computation alone
  double forwardFixed = 0, backwardFixed = 0; ///< the part of them that no fewer rows shorten: launches and latencies
  double weightGradient = 0;                  ///< the part of `backward` that computes gradients of weights
  double afterExchanges = 0;                  ///< the part of `backward` after the last of exchangesBackward
  double hidden = 0;                          ///< seconds of the backward pass's collectives that this hides
  double sent = 0;                            ///< bytes that steps of other layers read, in the forward pass
  double sentShare = 1;                       ///< bytes of a value that it sends, over those in default shardings
  double kept = 0;                            ///< bytes from the forward to the backward pass, of one microbatch
  /// Where gradients of weights come later than those of inputs: what they read of these, less what is no longer kept.
  double keptGradients = 0;
  double scores = 0;    ///< the same for attention scores, on devices where it is not fused
  double transient = 0; ///< the most bytes during a step of the layer, without what is kept
  double parameters = 0, copies = 0, gradients = 0, states = 0; ///< bytes as the plan stores them
  /// Whether the passes have collectives in the stream of `gathers` and `sums`.
  bool exchangesForward = false, exchangesBackward = false;
  double gathers = 0;               ///< seconds of the collectives that gather its parameters before the passes
  double sums = 0;                  ///< seconds of the collectives that sum one gradient each, after the passes
  std::vector<BucketedSum> buckets; ///< other gradients, in the order in which the backward pass completes them
};

/// Ranks that sum gradients together, and how much longer their bytes move because other groups share their links.
struct SumGroup {
  GroupLinks links;
  double stretch = 1;
};
double secondsOf(const SumGroup &group, plan::CollectiveKind kind, double bytes);

struct PlanCosts {
  std::map<std::string, LayerCost> layers;
  LayerCost total; ///< sums over the layers; the largest transient
  std::vector<SumGroup> groups;
  double beginWork = 0, endWork = 0; ///< seconds of computation before the first microbatch, and after the last
  double beginFills = 0;             ///< of beginWork: gradients are set to zero, if there are several microbatches
  double metrics = 0;                ///< seconds in which the ranks of the trial sum the metrics
  /// Seconds of other collectives there that belong to no layer: norms, and those of passes that only other
  /// microbatches hide, such as gathers of inputs.
  double beginOthers = 0, endOthers = 0;
  bool hides = false; ///< whether the device can communicate while it computes
  double others = 0;  ///< bytes that no layer has: inputs, workspaces, scalars
};

/// The costs on one kind of device of a site, those of its slowest rank, and the bytes of the device that a plan may
/// use.
struct KindCosts {
  PlanCosts costs;
  double capacity = 0;
};
/// The costs on all kinds of devices of a site, those of the slowest first: it decides the times.
using SiteCosts = std::vector<KindCosts>;

/// Simulates `plan`, which has one stage, at least three microbatches and a joined backward pass, and has passed the
/// checks of its structure. The second microbatch gives the times of layers: parameters are gathered before the first
/// one, and gradients summed after the last. `devices`: see SimulateOptions. `dataRanks`: how many ranks there are
/// along axis dp instead of those of the plan, each with as many rows; 0: those of the plan. Throws as simulate() does.
SiteCosts measureLayers(const plan::Plan &plan, const Cluster &cluster, const std::vector<uint32_t> &devices,
                        int64_t dataRanks = 0);

} // namespace cleave::partitioner
