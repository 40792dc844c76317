// Attributes the simulated timeline of a plan, and its slots, to layers.
#include "partitioner/search/LayerCosts.h"

#include "partitioner/cost/Constants.h"
#include "partitioner/cost/StepCost.h"
#include "partitioner/search/DataRanks.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Simulate.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/steps/Communication.h"
#include "runtime/plan/steps/Steps.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

namespace cleave::partitioner {

using check::length;

namespace {

class LayerMeasure {
public:
  LayerMeasure(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation, size_t rankClass,
               double zeroShare)
      : plan(plan), timeline(simulation.timeline[rankClass]), ranks(simulation.ranks),
        own(simulation.ranks.classes[rankClass]), program(*plan.programs()->Get(own.program)),
        kind(cluster.devices[own.kind]), zeroShare(zeroShare) {}

  PlanCosts run() {
    keptBytes();
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      if (program.segments()->Get(s)->kind() == plan::SegmentKind::Backward)
        keptGradientBytes(*program.segments()->Get(s));
    for (const auto &[slot, layer] : keptForward)
      if (!readLater.contains(slot))
        use.layers[layer].keptGradients -= static_cast<double>(arenaBytes(*program.slots()->Get(slot)));
    times();
    persistentBytes();
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      if (const plan::Segment &segment = *program.segments()->Get(s); isPass(segment.kind())) {
        transientBytes(segment);
        if (isForward(segment))
          sentBytes(segment);
      }
    scoreBytes();
    addUp();
    return std::move(use);
  }

private:
  static bool isPass(plan::SegmentKind kind) {
    return kind == plan::SegmentKind::Forward || kind == plan::SegmentKind::Backward;
  }

  const plan::Segment &segmentOf(const StepSpan &span) const {
    return *program.segments()->Get(program.train()->Get(span.action)->segment());
  }

  std::string layerOf(const plan::Step &step) const { return cleave::text(plan.strings()->Get(step.layer())); }
  std::string layerOf(const plan::Tensor &tensor) const { return cleave::text(plan.strings()->Get(tensor.layer())); }

  /// The layers of the gradients that a step adds up for several layers, with their bytes; empty: any other step. Such
  /// a step waits until the gradients are summed over axis dp.
  std::map<std::string, double> gradientsOf(const plan::Step &step) const {
    if (!isOfWeights(step))
      return {};
    std::map<std::string, double> bytes;
    bool others = false;
    check::forEachAccess(
        step, program,
        [&](const check::Access &access) {
          const plan::Slot &slot = *program.slots()->Get(access.slot);
          if (access.kind == check::Access::Write && !isGradient(access.slot))
            others = true;
          else if (access.kind == check::Access::Write)
            bytes[layerOf(*tensorOf(slot))] += static_cast<double>(arenaBytes(slot));
        },
        &plan);
    return others ? std::map<std::string, double>() : bytes;
  }

  /// Whether a split backward pass does the step later.
  static bool isOfWeights(const plan::Step &step) {
    return step.role() == plan::StepRole::WeightGradient || step.role() == plan::StepRole::Gradients;
  }

  bool isGradient(uint32_t slot) const {
    const plan::Tensor *tensor = tensorOf(*program.slots()->Get(slot));
    return tensor && tensor->kind() == plan::TensorKind::Gradient;
  }

  /// Adds what a split backward pass keeps for the gradients of weights: what their steps read of the other steps.
  void keptGradientBytes(const plan::Segment &segment) {
    struct Values { // the slots of a step by value: slots are used again, values are not
      std::map<uint32_t, uint32_t> read, written;
    };
    const uint32_t steps = length(segment.steps());
    std::vector<Values> of(steps);
    std::map<uint32_t, std::vector<uint32_t>> readers, writers; // of a value: steps
    for (uint32_t i = 0; i < steps; ++i) {
      const plan::Step &step = *segment.steps()->Get(i);
      uint32_t number = 0;
      check::forEachAccess(
          step, program,
          [&](const check::Access &access) {
            const uint32_t value = step.values()->Get(number++);
            const bool write = access.kind == check::Access::Write;
            if ((write ? of[i].written : of[i].read).emplace(value, access.slot).second)
              (write ? writers : readers)[value].push_back(i);
          },
          &plan);
    }
    const auto isLater = [&](uint32_t i) { return isOfWeights(*segment.steps()->Get(i)); };
    // Whether the later pass makes a value from what the forward pass keeps, although a kernel makes it with others.
    const auto isMadeAgain = [&](uint32_t value) {
      return std::ranges::all_of(readers[value], isLater) && std::ranges::none_of(writers[value], [&](uint32_t writer) {
               return std::ranges::any_of(of[writer].read,
                                          [&](const auto &read) { return writers.contains(read.first); });
             });
    };
    std::set<uint32_t> kept; // values
    for (uint32_t i = 0; i < steps; ++i)
      for (const auto &[value, slot] : of[i].read) {
        if (!isLater(i))
          break;
        readLater.insert(slot);
        const auto found = writers.find(value);
        if (found == writers.end() || std::ranges::all_of(found->second, isLater))
          continue;
        if (isMadeAgain(value)) {
          for (const uint32_t writer : found->second)
            for (const auto &[source, from] : of[writer].read)
              readLater.insert(from);
        } else if (kept.insert(value).second && !keptForward.contains(slot)) {
          use.layers[layerOf(*segment.steps()->Get(i))].keptGradients +=
              static_cast<double>(arenaBytes(*program.slots()->Get(slot)));
        }
      }
  }

  /// Seconds of a step of a pass that do not depend on its rows.
  double fixedOf(const plan::Step &step) const {
    const plan::Collective *collective = step.op_as_Collective();
    if (!collective)
      return constantsOf(kind).launchSeconds;
    const auto bytes = static_cast<double>(steps::bytesOf(*collective));
    return collectiveCost(collective->kind(), bytes, own.groups[collective->group()].links).seconds.fixed;
  }

  void addTime(const plan::Segment &segment, const plan::Step &step, double seconds, double work) {
    std::map<std::string, double> shares = gradientsOf(step);
    if (shares.empty())
      shares[layerOf(step)] = 1;
    double all = 0;
    for (const auto &[path, share] : shares)
      all += share;
    for (const auto &[path, share] : shares) {
      LayerCost &layer = use.layers[path];
      (isForward(segment) ? layer.forward : layer.backward) += seconds * share / all;
      (isForward(segment) ? layer.forwardWork : layer.backwardWork) += work * share / all;
      if (seconds > 0)
        (isForward(segment) ? layer.forwardFixed : layer.backwardFixed) +=
            std::min(seconds, fixedOf(step)) * share / all;
      if (isOfWeights(step))
        layer.weightGradient += seconds * share / all;
    }
  }

  static bool isForward(const plan::Segment &segment) { return segment.kind() == plan::SegmentKind::Forward; }

  /// Between the ends of two steps that compute, the time belongs to the layer of the second, but for what it waits for
  /// the end of a collective: to the layer of that.
  void times() {
    constexpr int32_t measured = 1; // microbatch
    std::vector<StepSpan> spans = timeline;
    std::ranges::stable_sort(spans, {}, &StepSpan::begin);
    use.hides = backendOf(plan) == Target::Kind::Cuda;
    const uint32_t replicas = replicaStream(plan, own.program);
    const uint32_t ends =
        std::ranges::find(spans, replicas, &StepSpan::stream) != spans.end() ? replicas : 1; // gathers and sums
    double clock = 0, first = -1, last = 0;                // of the measured microbatch's computation
    std::vector<StepSpan> aside;                           // its collectives in the other stream
    std::map<std::string, double> exchanged;               // by layer: the end of the last one of its backward pass
    std::map<std::string, std::vector<StepSpan>> computed; // by layer: its backward pass
    for (const StepSpan &span : spans) {
      const plan::Segment &segment = segmentOf(span);
      const plan::Step &step = *segment.steps()->Get(span.step);
      const bool collective = step.op_type() == plan::StepOp::Collective;
      const double less = savedBy(step, isPass(segment.kind())), seconds = span.end - span.begin - less;
      if (!isPass(segment.kind()))
        addEnds(segment.kind() == plan::SegmentKind::Begin, step, seconds);
      const bool counts = isPass(segment.kind()) && program.train()->Get(span.action)->microbatch() == measured;
      if (counts && collective && step.role() == plan::StepRole::InputGradient) // earlier layers wait for it
        exchanges[layerOf(step)] += seconds;
      if (span.stream != 0) {
        if (counts && collective) {
          addTime(segment, step, 0, 0);
          aside.push_back(span);
          if (span.stream == ends) {
            LayerCost &layer = use.layers[layerOf(step)];
            (isForward(segment) ? layer.exchangesForward : layer.exchangesBackward) = true;
            if (!isForward(segment))
              exchanged[layerOf(step)] = span.end;
          }
        }
        continue;
      }
      if (counts) {
        const StepSpan *before = nullptr; // of the collectives that end before the step begins, the last one
        for (const StepSpan &other : aside)
          if (other.end > clock && other.end <= span.begin && (!before || other.end > before->end))
            before = &other;
        const double waits = before ? before->end - clock : 0;
        if (before)
          addTime(segmentOf(*before), *segmentOf(*before).steps()->Get(before->step), waits, 0);
        addTime(segment, step, std::max(0.0, span.end - clock - waits - less), collective ? 0 : seconds);
        if (!isForward(segment))
          computed[layerOf(step)].push_back(span);
        if (first < 0)
          first = clock;
        last = std::max(last, span.end);
      }
      clock = std::max(clock, span.end);
    }
    for (const auto &[path, end] : exchanged)
      for (const StepSpan &span : computed[path])
        use.layers[path].afterExchanges += std::max(0.0, span.end - std::max(span.begin, end));
    // What the microbatches before and after hide: nothing hides it in the first and the last one.
    for (const StepSpan &span : aside) {
      use.beginOthers += std::max(0.0, std::min(span.end, first) - span.begin);
      use.endOthers += std::max(0.0, span.end - std::max(span.begin, last));
    }
    for (const auto &[path, seconds] : exchanges) {
      LayerCost &layer = use.layers[path];
      layer.hidden = std::max(0.0, layer.backwardWork + seconds - layer.backward);
    }
  }

  void addEnds(bool begin, const plan::Step &step, double seconds) {
    const auto *collective = step.op_as_Collective();
    if (!collective) {
      (begin ? use.beginWork : use.endWork) += seconds;
      if (const plan::Fill *fill = begin ? step.op_as_Fill() : nullptr; fill && isGradient(fill->dst()))
        use.beginFills += seconds;
      return;
    }
    const auto bytes = static_cast<double>(steps::bytesOf(*collective));
    const bool bucket = !begin && collective->kind() == plan::CollectiveKind::AllReduce;
    double others = seconds;
    for (uint32_t i = 0; i < length(collective->buffers()); ++i) {
      const plan::CollectiveBuffer &buffer = *collective->buffers()->Get(i);
      std::string layer = layerOfSlot(buffer.in());
      if (layer.empty())
        layer = layerOfSlot(buffer.out());
      if (layer.empty())
        continue;
      const auto own = static_cast<double>(steps::elementsOf(*collective, buffer) * dtypeSize(collective->dtype()));
      if (bucket)
        use.layers[layer].buckets.push_back({groupOf(collective->group()), own});
      else
        (begin ? use.layers[layer].gathers : use.layers[layer].sums) += seconds * own / bytes;
      others -= seconds * own / bytes;
    }
    (step.role() == plan::StepRole::Metrics ? use.metrics
     : begin                                ? use.beginOthers
                                            : use.endOthers) += std::max(0.0, others);
  }

  /// The layer of a parameter, or of its gradient; empty for other slots.
  std::string layerOfSlot(uint32_t slot) const {
    const plan::Tensor *tensor = tensorOf(*program.slots()->Get(slot));
    if (!tensor || tensor->kind() == plan::TensorKind::Metric || tensor->kind() == plan::TensorKind::Scalar)
      return "";
    return layerOf(*tensor);
  }

  size_t groupOf(uint32_t entry) {
    const GroupUse &group = own.groups[entry];
    const auto [found, fresh] = groups.try_emplace(group.first, use.groups.size());
    if (fresh)
      use.groups.push_back({group.links, stretchOf(group)});
    return found->second;
  }

  /// How much longer the bytes of a group move, because other ranks' groups of its kind use the same links.
  double stretchOf(const GroupUse &group) const {
    std::set<uint32_t> meetings;
    for (const AlikeRanks &alike : ranks.classes)
      for (const GroupUse &other : alike.groups)
        if (other.links == group.links)
          meetings.insert(other.meeting);
    const Flow &flow = ranks.flows[group.meeting];
    double stretch = flow.stretch;
    for (const Flow::Use &use : flow.uses) {
      double load = 0;
      for (const uint32_t meeting : meetings)
        for (const Flow::Use &other : ranks.flows[meeting].uses)
          load += other.link == use.link ? other.share : 0;
      stretch = std::max(stretch, load);
    }
    return stretch;
  }

  bool isSplitOverData(const plan::Slot &slot) const {
    for (uint32_t d = 0; slot.sharding() && d < length(slot.sharding()->dims()); ++d)
      for (uint32_t f = 0; f < length(slot.sharding()->dims()->Get(d)->factors()); ++f) {
        const auto *axes = slot.sharding()->dims()->Get(d)->factors()->Get(f)->axes(); // null: not split
        for (uint32_t a = 0; a < length(axes); ++a)
          if (roleOf(plan.mesh()->Get(axes->Get(a))->name()->string_view()) == AxisRole::Data)
            return true;
      }
    return false;
  }

  /// Nothing but what ZeRO divides is stored in shares along axis dp, in the plans whose ranks are others.
  bool isShare(const plan::Slot &slot) const {
    return slot.space() == plan::Space::Persistent && isSplitOverData(slot);
  }

  double bytesOf(const plan::Slot &slot) const {
    return static_cast<double>(arenaBytes(slot)) * (isShare(slot) ? zeroShare : 1);
  }

  /// Seconds that a step takes less than in the plan, because the shares of ZeRO are smaller.
  double savedBy(const plan::Step &step, bool inPass) {
    if (zeroShare == 1 || step.op_type() == plan::StepOp::Collective)
      return 0;
    const auto [found, fresh] = saved.try_emplace(&step, 0);
    if (!fresh)
      return found->second;
    bool ofShares = !inPass; // where no slot has the rows of a microbatch
    double all = 0, split = 0;
    check::forEachAccess(
        step, program,
        [&](const check::Access &access) {
          const plan::Slot &slot = *program.slots()->Get(access.slot);
          ofShares |= isShare(slot);
          all += static_cast<double>(slot.bytes());
          split += isSplitOverData(slot) ? static_cast<double>(slot.bytes()) : 0;
        },
        &plan);
    if (ofShares && split > 0) {
      StepWork work = workOf(plan, program, step);
      const CostDevice device(kind);
      const double whole = stepCost(work, device).seconds();
      work.bytes *= 1 - split / all * (1 - zeroShare);
      found->second = whole - stepCost(work, device).seconds();
    }
    return found->second;
  }

  const plan::Tensor *tensorOf(const plan::Slot &slot) const {
    return slot.tensor() < 0 ? nullptr : plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()));
  }

  void persistentBytes() {
    for (uint32_t s = 0; s < length(program.slots()); ++s) {
      const plan::Slot &slot = *program.slots()->Get(s);
      if (slot.space() != plan::Space::Persistent)
        continue;
      const double bytes = bytesOf(slot);
      const plan::Tensor *tensor = tensorOf(slot);
      if (!tensor || tensor->kind() == plan::TensorKind::Scalar || tensor->kind() == plan::TensorKind::Metric) {
        use.others += bytes;
        continue;
      }
      LayerCost &layer = use.layers[layerOf(*tensor)];
      (tensor->kind() == plan::TensorKind::Parameter  ? layer.parameters
       : tensor->kind() == plan::TensorKind::Gradient ? layer.gradients
       : tensor->kind() == plan::TensorKind::State    ? layer.states
                                                      : layer.copies) += bytes;
    }
    use.others += static_cast<double>(2 * program.input_bytes() + program.workspace_bytes());
  }

  void keptBytes() {
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      for (uint32_t i = 0; segment.kind() == plan::SegmentKind::Forward && i < length(segment.leaves()); ++i) {
        const uint32_t slot = segment.leaves()->Get(i)->slot();
        if (program.slots()->Get(slot)->space() != plan::Space::Placed || keptForward.contains(slot))
          continue;
        const std::string &layer = keptForward[slot] = writerOf(segment, slot);
        use.layers[layer].kept += static_cast<double>(arenaBytes(*program.slots()->Get(slot)));
      }
    }
  }

  void sentBytes(const plan::Segment &segment) {
    std::map<uint32_t, std::string> writers; // of values that no other layer has read yet
    for (uint32_t i = 0; i < length(segment.steps()); ++i) {
      const plan::Step &step = *segment.steps()->Get(i);
      const std::string layer = layerOf(step);
      uint32_t number = 0;
      check::forEachAccess(
          step, program,
          [&](const check::Access &access) {
            const uint32_t value = step.values()->Get(number++);
            if (access.kind == check::Access::Write)
              writers[value] = layer;
            else if (const auto writer = writers.find(value); writer != writers.end() && writer->second != layer) {
              use.layers[writer->second].sent += static_cast<double>(program.slots()->Get(access.slot)->bytes());
              writers.erase(writer);
            }
          },
          &plan);
    }
  }

  /// The layer of the step that writes a slot.
  std::string writerOf(const plan::Segment &segment, uint32_t slot) {
    if (writers.empty())
      for (uint32_t i = 0; i < length(segment.steps()); ++i) {
        const plan::Step &step = *segment.steps()->Get(i);
        const std::string layer = layerOf(step);
        check::forEachAccess(
            step, program,
            [&](const check::Access &access) {
              if (access.kind == check::Access::Write)
                writers[access.slot] = layer;
            },
            &plan);
      }
    const auto found = writers.find(slot);
    return found == writers.end() ? std::string() : found->second;
  }

  /// Follows the slots that live within a segment from their first to their last step.
  void transientBytes(const plan::Segment &segment) {
    const uint32_t steps = length(segment.steps());
    std::map<uint32_t, std::pair<uint32_t, uint32_t>> lives; // slot -> first and last step
    for (uint32_t i = 0; i < steps; ++i)
      check::forEachAccess(
          *segment.steps()->Get(i), program,
          [&](const check::Access &access) {
            if (program.slots()->Get(access.slot)->space() == plan::Space::Placed && !keptForward.contains(access.slot))
              lives.try_emplace(access.slot, i, i).first->second.second = i;
          },
          &plan);
    std::vector<double> change(steps + 1);
    for (const auto &[slot, life] : lives) {
      const auto bytes = static_cast<double>(arenaBytes(*program.slots()->Get(slot)));
      change[life.first] += bytes, change[life.second + 1] -= bytes;
    }
    double live = 0;
    for (uint32_t i = 0; i < steps; ++i) {
      live += change[i];
      double &most = use.layers[layerOf(*segment.steps()->Get(i))].transient;
      most = std::max(most, live);
    }
  }

  void scoreBytes() {
    const auto all = static_cast<double>(keptScoreBytes(program, kind));
    std::vector<std::string> with;
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      for (uint32_t i = 0; segment.kind() == plan::SegmentKind::Forward && i < length(segment.steps()); ++i)
        if (segment.steps()->Get(i)->op_type() == plan::StepOp::Attention)
          with.push_back(layerOf(*segment.steps()->Get(i)));
    }
    for (const std::string &layer : with)
      use.layers[layer].scores += all / static_cast<double>(with.size());
  }

  void addUp() {
    LayerCost &all = use.total;
    for (const auto &[path, layer] : use.layers) {
      for (double LayerCost::*field :
           {&LayerCost::forward, &LayerCost::backward, &LayerCost::forwardWork, &LayerCost::backwardWork,
            &LayerCost::forwardFixed, &LayerCost::backwardFixed, &LayerCost::weightGradient, &LayerCost::hidden,
            &LayerCost::keptGradients, &LayerCost::kept, &LayerCost::scores, &LayerCost::parameters, &LayerCost::copies,
            &LayerCost::gradients, &LayerCost::states})
        all.*field += layer.*field;
      all.transient = std::max(all.transient, layer.transient);
    }
  }

  const plan::Plan &plan;
  const std::vector<StepSpan> &timeline;
  const RankClasses &ranks;
  const AlikeRanks &own;
  const plan::Program &program;
  const DeviceKind &kind;
  const double zeroShare;
  PlanCosts use;
  std::map<uint32_t, size_t> groups;           ///< PlanCosts::groups, by the rank's entry
  std::map<uint32_t, std::string> keptForward; ///< slots of the forward pass, with the layers that write them
  std::set<uint32_t> readLater;                ///< slots that steps for gradients of weights read
  std::map<std::string, double> exchanges;     ///< seconds of collectives for which earlier layers wait, by layer
  std::map<const plan::Step *, double> saved;
  std::map<uint32_t, std::string> writers;
};

} // namespace

double secondsOf(const SumGroup &group, plan::CollectiveKind kind, double bytes) {
  const TransferSeconds seconds = collectiveCost(kind, bytes, group.links).seconds;
  return seconds.fixed + group.stretch * seconds.moving;
}

SiteCosts measureLayers(const plan::Plan &plan, const Cluster &cluster, const std::vector<uint32_t> &devices,
                        int64_t dataRanks) {
  SimulateOptions options{.timeline = true, .devices = devices};
  std::shared_ptr<const PlanFile> ranks;
  double zeroShare = 1;
  if (dataRanks > 0) {
    ranks = withDataRanks(plan, static_cast<uint32_t>(dataRanks));
    options.table = &ranks->plan();
    zeroShare = static_cast<double>(sizeOfAxis(plan, AxisRole::Data)) / static_cast<double>(dataRanks);
  }
  const Simulation simulation = simulate(plan, cluster, options);
  SiteCosts all;
  std::map<size_t, size_t> kinds; // place in `all`
  for (size_t c = 0; c < simulation.ranks.classes.size(); ++c) {
    const size_t kind = simulation.ranks.classes[c].kind;
    const DeviceKind &device = cluster.devices[kind];
    KindCosts costs{LayerMeasure(plan, cluster, simulation, c, zeroShare).run(), usableBytes(device)};
    const auto passes = [](const KindCosts &one) { return one.costs.total.forward + one.costs.total.backward; };
    if (const auto [known, fresh] = kinds.emplace(kind, all.size()); fresh)
      all.push_back(std::move(costs));
    else if (KindCosts &slowest = all[known->second]; passes(costs) > passes(slowest))
      slowest = std::move(costs); // a group along axis tp over two nodes, for example
  }
  std::ranges::stable_sort(all, std::greater(), [](const KindCosts &one) {
    return one.costs.total.forwardWork + one.costs.total.backwardWork;
  });
  return all;
}

} // namespace cleave::partitioner
