// Follows the streams of a rank at both ends of an iteration, layer by layer.
#include "partitioner/search/Ends.h"

#include "partitioner/strategy/Buckets.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <ranges>

namespace cleave::partitioner {
namespace {

/// The stream of collectives at the end of an iteration.
class SumStream {
public:
  SumStream(const PlanCosts &use, double begin) : use(use), clock(begin) {}

  void add(const BucketedSum &sum, double ready) {
    Open &bucket = open[sum.group];
    if (bucket.bytes > 0 && bucket.bytes + sum.bytes > static_cast<double>(gradientBucketBytes))
      send(sum.group);
    bucket.bytes += sum.bytes, bucket.ready = std::max(bucket.ready, ready);
  }
  void add(double seconds, double ready) {
    if (seconds > 0)
      clock = std::max(clock, ready) + seconds;
  }
  double end() {
    for (const auto &[group, bucket] : open)
      if (bucket.bytes > 0)
        send(group);
    return clock;
  }

private:
  struct Open {
    double bytes = 0, ready = 0;
  };

  void send(size_t group) {
    add(secondsOf(use.groups[group], plan::CollectiveKind::AllReduce, open[group].bytes), open[group].ready);
    open[group] = {};
  }

  const PlanCosts &use;
  double clock;
  std::map<size_t, Open> open; ///< by group
};

/// When the last backward pass of a stage has computed the gradients of each layer's weights.
std::vector<double> gradientTimes(const StagePasses &stage) {
  std::vector<double> ready(stage.layers.size());
  double clock = stage.lastWeights;
  for (size_t i = ready.size(); i-- > 0;) {
    clock += stage.split ? stage.layers[i]->weightGradient : stage.layers[i]->backward;
    ready[i] = clock;
  }
  return ready;
}

/// When the collectives of the last backward passes in the stream of sums have ended.
double endOfExchanges(const std::vector<StagePasses> &stages) {
  double end = 0;
  for (const StagePasses &stage : stages) {
    const auto first = std::ranges::find_if(stage.layers, &LayerCost::exchangesBackward);
    if (first != stage.layers.end())
      end = std::max(end, stage.split
                              ? stage.lastInputsEnd
                              : gradientTimes(stage)[size_t(first - stage.layers.begin())] - (*first)->afterExchanges);
  }
  return end;
}

} // namespace

std::vector<double> readyTimes(const PlanCosts &use, const std::vector<std::vector<const LayerCost *>> &stages,
                               double scale, bool oneMicrobatch) {
  const double work = (use.beginWork - (oneMicrobatch ? use.beginFills : 0)) * scale;
  double gathered = use.beginOthers;
  for (const auto &layers : stages)
    for (const LayerCost *layer : layers)
      gathered += layer->gathers;
  std::vector<double> ready(stages.size(), use.hides ? work : work + gathered);
  double own = use.beginOthers; // up to the layer
  for (size_t s = 0; use.hides && s < stages.size(); ++s) {
    double before = 0; // forward passes of the stage's layers before this one
    for (const LayerCost *layer : stages[s]) {
      own += layer->gathers;
      ready[s] = std::max(ready[s], (layer->exchangesForward ? gathered : own) - before);
      before += layer->forward;
    }
  }
  return ready;
}

double endOfSums(const PlanCosts &use, const std::vector<StagePasses> &stages, double end,
                 const std::vector<LateSum> &tied) {
  SumStream stream(use, use.hides ? endOfExchanges(stages) : end);
  for (const StagePasses &stage : std::views::reverse(stages)) {
    const std::vector<double> ready = gradientTimes(stage);
    for (size_t i = ready.size(); i-- > 0;) {
      for (const BucketedSum &sum : stage.layers[i]->buckets)
        stream.add(sum, ready[i]);
      stream.add(stage.layers[i]->sums, ready[i]);
    }
  }
  for (const LateSum &sum : tied)
    stream.add(sum.seconds, sum.ready);
  return stream.end();
}

} // namespace cleave::partitioner
