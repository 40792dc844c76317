// Sums the steps of each segment, and the slots that segments leave for later segments of the same microbatch.
#include "partitioner/simulate/MeasureStages.h"

#include "partitioner/cost/Constants.h"
#include "partitioner/pipeline/Search.h"
#include "partitioner/simulate/Memory.h"
#include "partitioner/simulate/Script.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <set>

namespace cleave::partitioner {

using check::length;

namespace {

constexpr double milliseconds = 1e3;

/// Seconds from the beginning of the first step to the end of the last one, if no step waits for other actions or
/// ranks.
double secondsOf(const Script &script, const ScriptAction &action, const std::vector<TransferSeconds> &costs) {
  const ScriptSegment &segment = script.segments[action.segment];
  std::vector<double> streamEnd(script.streams.size()), end(segment.steps.size());
  uint32_t wait = action.waits;
  double last = 0;
  for (uint32_t s = 0; s < segment.steps.size(); ++s) {
    const ScriptStep &step = segment.steps[s];
    double begin = streamEnd[step.stream];
    for (; wait < action.waitsEnd && script.waits[wait].step == s; ++wait)
      if (const uint32_t on = script.waits[wait].item; on >= action.firstItem)
        begin = std::max(begin, end[on - action.firstItem]);
    const bool message = step.kind == ScriptStep::Send || step.kind == ScriptStep::Recv;
    end[s] = streamEnd[step.stream] = begin + (message ? 0 : costs[segment.firstCost + s].all());
    last = std::max(last, end[s]);
  }
  return last;
}

double messageSecondsOf(const ScriptSegment &segment, const std::vector<TransferSeconds> &costs) {
  double seconds = 0;
  for (uint32_t s = 0; s < segment.steps.size(); ++s)
    if (segment.steps[s].kind == ScriptStep::Send)
      seconds += costs[segment.firstCost + s].all();
  return seconds;
}

/// Raises the times of stages to those of a class of ranks, if these are larger.
void addTimes(const plan::Program &program, const Script &script, const std::vector<TransferSeconds> &costs,
              std::vector<StageCosts> &stages) {
  const auto raise = [](double &time, double seconds) { time = std::max(time, milliseconds * seconds); };
  std::set<uint32_t> seen;
  for (const ScriptAction &action : script.actions) {
    const plan::Segment &segment = *program.segments()->Get(action.segment);
    if (segment.stage() < 0 || !seen.insert(action.segment).second)
      continue;
    StageCosts &stage = stages[static_cast<size_t>(segment.stage())];
    double *time = nullptr;
    if (segment.kind() == plan::SegmentKind::Forward)
      time = &stage.forward;
    else if (segment.kind() == plan::SegmentKind::InputGradient)
      time = &stage.inputGradient;
    else if (segment.kind() == plan::SegmentKind::WeightGradient)
      time = &stage.weightGradient;
    else
      continue;
    raise(*time, secondsOf(script, action, costs));
    raise(stage.send, messageSecondsOf(script.segments[action.segment], costs));
  }
}

/// Raises the bytes of stages to those of a class of ranks, if these are larger: the slots that a stage's forward pass,
/// and its input gradient, leave for later segments. A slot that several stages of a rank share counts once.
void addBytes(const plan::Program &program, const DeviceKind &kind, std::vector<StageCosts> &stages) {
  std::set<uint32_t> counted, own;
  for (const plan::SegmentKind pass : {plan::SegmentKind::Forward, plan::SegmentKind::InputGradient})
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      const plan::Segment &segment = *program.segments()->Get(s);
      if (segment.stage() < 0 || segment.kind() != pass)
        continue;
      double bytes = 0;
      for (uint32_t i = 0; i < length(segment.leaves()); ++i) {
        const uint32_t slot = segment.leaves()->Get(i)->slot();
        if (program.slots()->Get(slot)->space() == plan::Space::Placed && counted.insert(slot).second)
          bytes += static_cast<double>(arenaBytes(*program.slots()->Get(slot)));
      }
      StageCosts &stage = stages[static_cast<size_t>(segment.stage())];
      double &kept = pass == plan::SegmentKind::Forward ? stage.activationBytes : stage.gradientBytes;
      kept = std::max(kept, bytes);
      own.insert(static_cast<uint32_t>(segment.stage()));
    }
  for (const uint32_t stage : own) // the scores of all stages of a rank are kept at the same time
    stages[stage].activationBytes +=
        static_cast<double>(keptScoreBytes(program, kind)) / static_cast<double>(own.size());
}

Schedule shapeOf(const plan::Plan &plan) {
  uint32_t positions = 0;
  for (uint32_t p = 0; p < length(plan.programs()); ++p)
    positions = std::max(positions, plan.programs()->Get(p)->stage() + 1);
  Schedule shape{"", positions, length(plan.stages()) / positions};
  for (uint32_t p = 0; p < length(plan.programs()); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      if (const int32_t stage = program.segments()->Get(s)->stage();
          stage >= 0 && shape.rankOf(stage) != program.stage())
        shape.placement = Placement::V;
  }
  return shape;
}

} // namespace

MeasuredStages measureStages(const plan::Plan &plan, const Cluster &cluster) {
  MeasuredStages found;
  found.stages.resize(length(plan.stages()));
  const RankClasses ranks = classifyRanks(plan, cluster);
  const bool gpu = backendOf(plan) == Target::Kind::Cuda;
  for (const AlikeRanks &rankClass : ranks.classes) {
    const plan::Program &program = *plan.programs()->Get(rankClass.program);
    const CostDevice device(cluster.devices[rankClass.kind]);
    const Script script = makeScript(plan, program, gpu);
    addTimes(program, script, scriptCosts(script, ranks, rankClass, device), found.stages);
    addBytes(program, device.kind, found.stages);
  }
  const std::vector<double> oneMicrobatch = leastBytes(shapeOf(plan), found.stages);
  found.limits.assign(oneMicrobatch.size(), std::numeric_limits<double>::infinity());
  for (const AlikeRanks &rankClass : ranks.classes) {
    const plan::Program &program = *plan.programs()->Get(rankClass.program);
    const DeviceKind &kind = cluster.devices[rankClass.kind];
    const double free = usableBytes(kind) - static_cast<double>(neededBytes(program, kind));
    double &limit = found.limits[program.stage()];
    limit = std::min(limit, free + oneMicrobatch[program.stage()]);
  }
  return found;
}

} // namespace cleave::partitioner
