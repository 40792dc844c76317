// Sums spans of a simulation by axis and by step, and slots by their path.
#include "partitioner/simulate/Breakdown.h"

#include "partitioner/simulate/Intervals.h"
#include "runtime/base/Mesh.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cleave::partitioner {

using check::length;

namespace {

std::string stringAt(const plan::Plan &plan, uint32_t index) {
  return index < length(plan.strings()) ? text(plan.strings()->Get(index)) : "";
}

/// The axis along which a step communicates; "": it computes.
std::string axisOf(const plan::Plan &plan, const plan::Rank &rank, const plan::Step &step) {
  if (const plan::Collective *op = step.op_as_Collective())
    return text(plan.groups()->Get(rank.groups()->Get(op->group()))->axis());
  return step.op_as_Send() || step.op_as_Recv() ? axisName(AxisRole::Pipeline) : "";
}

struct Communicates {
  std::string axis;
  double begin, end;
};

/// Takes the moments of `spans`, in order of their begins, that no earlier one has.
std::vector<AxisTime> timesByAxis(std::vector<Communicates> spans, Intervals computes) {
  computes.merge();
  std::ranges::sort(spans, {}, [](const Communicates &one) { return std::pair(one.begin, one.axis); });
  std::map<std::string, Intervals> own, all;
  double reached = 0;
  for (const Communicates &one : spans) {
    all[one.axis].add(one.begin, one.end);
    own[one.axis].add(std::max(one.begin, reached), one.end);
    reached = std::max(reached, one.end);
  }
  std::vector<AxisTime> times;
  for (auto &[axis, intervals] : all) {
    intervals.merge();
    own[axis].merge();
    times.push_back({axis, own[axis].length() - own[axis].overlap(computes), intervals.overlap(computes)});
  }
  std::ranges::sort(times, std::greater(), &AxisTime::exposed);
  return times;
}

/// The most microbatches for which a stage's forward passes keep values at the same time.
std::map<int32_t, int64_t> inFlightByStage(const plan::Program &program) {
  std::map<int32_t, int64_t> live, most;
  std::map<int32_t, bool> splits; // stages whose backward pass is split
  for (uint32_t s = 0; s < length(program.segments()); ++s)
    if (program.segments()->Get(s)->kind() == plan::SegmentKind::WeightGradient)
      splits[program.segments()->Get(s)->stage()] = true;
  for (uint32_t a = 0; a < length(program.train()); ++a) {
    const plan::Segment &segment = *program.segments()->Get(program.train()->Get(a)->segment());
    const int32_t stage = segment.stage();
    if (segment.kind() == plan::SegmentKind::Forward)
      most[stage] = std::max(most[stage], ++live[stage]);
    else if (segment.kind() == (splits[stage] ? plan::SegmentKind::WeightGradient : plan::SegmentKind::Backward))
      --live[stage];
  }
  return most;
}

std::vector<KeptBytes> keptBytes(const plan::Program &program) {
  const std::map<int32_t, int64_t> inFlight = inFlightByStage(program);
  std::vector<KeptBytes> kept;
  for (uint32_t s = 0; s < length(program.segments()); ++s) {
    const plan::Segment &segment = *program.segments()->Get(s);
    if (segment.kind() != plan::SegmentKind::Forward)
      continue;
    const auto found = inFlight.find(segment.stage());
    for (uint32_t i = 0; found != inFlight.end() && i < length(segment.leaves()); ++i) {
      const plan::Slot &slot = *program.slots()->Get(segment.leaves()->Get(i)->slot());
      if (slot.space() == plan::Space::Placed && slot.bytes() > 0)
        kept.push_back({text(slot.name()), arenaBytes(slot), found->second});
    }
  }
  std::ranges::sort(kept, std::greater(), &KeptBytes::all);
  return kept;
}

} // namespace

Breakdown breakdownOf(const plan::Plan &plan, const Cluster &cluster, const Simulation &simulation) {
  Breakdown result;
  result.memory = tightest(plan, cluster);
  const plan::Program &largest = *plan.programs()->Get(plan.ranks()->Get(result.memory.rank)->program());
  const Cluster::Place place = cluster.places(length(plan.ranks()))[result.memory.rank];
  result.parts = memoryParts(plan, largest, cluster.devices[place.kind]);
  result.kept = keptBytes(largest);

  const auto busiest = std::ranges::max_element(simulation.times, {}, &ClassTimes::busy);
  const auto index = static_cast<size_t>(busiest - simulation.times.begin());
  result.times = *busiest;
  result.rank = simulation.ranks.classes[index].representative;
  const plan::Program &program = *plan.programs()->Get(simulation.ranks.classes[index].program);
  const plan::Rank &rank = *plan.ranks()->Get(result.rank);
  std::vector<Communicates> communicates;
  Intervals computes;
  std::map<std::tuple<std::string, uint32_t>, StepTime> steps;
  for (const StepSpan &span : simulation.timeline[index]) {
    const plan::Segment &segment = *program.segments()->Get(program.train()->Get(span.action)->segment());
    const plan::Step &step = *segment.steps()->Get(span.step);
    const std::string axis = axisOf(plan, rank, step), kind = plan::EnumNameStepOp(step.op_type());
    if (axis.empty())
      computes.add(span.begin, span.end);
    else
      communicates.push_back({axis, span.begin, span.end});
    StepTime &time = steps[{kind + axis, step.path()}];
    if (time.kind.empty())
      time = {kind, stringAt(plan, step.path()), stringAt(plan, step.location()), !axis.empty(), 0};
    time.seconds += span.end - span.begin;
  }
  result.axes = timesByAxis(std::move(communicates), std::move(computes));
  for (auto &[key, time] : steps)
    result.steps.push_back(std::move(time));
  std::ranges::sort(result.steps, std::greater(), &StepTime::seconds);
  return result;
}

} // namespace cleave::partitioner
