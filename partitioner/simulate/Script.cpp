// Reads a program's actions, and computes the costs of its steps.
#include "partitioner/simulate/Script.h"

#include "runtime/plan/Segments.h"
#include "runtime/plan/steps/Communication.h"

#include <algorithm>

namespace cleave::partitioner {

using check::length;

namespace {

class Writer {
public:
  Writer(const plan::Plan &plan, const plan::Program &program, bool gpu) : plan(plan), program(program), gpu(gpu) {}

  Script write() {
    script.streams = {0};
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      addSegment(*program.segments()->Get(s));
    for (ScriptSegment &segment : script.segments) { // now that all streams are known
      segment.byStream.resize(script.streams.size());
      for (uint32_t i = 0; i < segment.steps.size(); ++i)
        segment.byStream[segment.steps[i].stream].push_back(i);
    }
    for (uint32_t a = 0; a < length(program.train()); ++a)
      addAction(*program.train()->Get(a));
    for (uint32_t a = 0; gpu && a < length(program.train()); ++a)
      addWaits(a);
    return std::move(script);
  }

private:
  uint32_t streamOf(uint32_t number) {
    if (!gpu)
      return 0;
    const auto found = std::ranges::find(script.streams, number);
    if (found == script.streams.end())
      script.streams.push_back(number);
    return static_cast<uint32_t>(std::ranges::find(script.streams, number) - script.streams.begin());
  }

  static bool isPass(plan::SegmentKind kind) {
    return phaseOf(kind) == SegmentPhase::Microbatches && kind != plan::SegmentKind::Eval;
  }

  void addSegment(const plan::Segment &segment) {
    ScriptSegment made;
    made.pipeline = isPass(segment.kind());
    made.firstCost = script.costs;
    for (uint32_t i = 0; i < length(segment.steps()); ++i) {
      const plan::Step &step = *segment.steps()->Get(i);
      made.flops += step.flops();
      made.steps.push_back(stepOf(step));
    }
    script.costs += static_cast<uint32_t>(made.steps.size());
    script.segments.push_back(std::move(made));
  }

  ScriptStep stepOf(const plan::Step &step) {
    ScriptStep made;
    made.stream = streamOf(step.stream());
    if (const auto *collective = step.op_as_Collective()) {
      made.kind = ScriptStep::Collective;
      made.entry = collective->group();
      made.bytes = static_cast<double>(steps::bytesOf(*collective));
      made.collective = collective->kind();
    } else if (const auto *send = step.op_as_Send()) {
      made.kind = ScriptStep::Send;
      made.entry = send->peer(), made.tag = send->tag(), made.bytes = static_cast<double>(send->bytes());
    } else if (const auto *recv = step.op_as_Recv()) {
      made.kind = ScriptStep::Recv;
      made.entry = recv->peer(), made.tag = recv->tag(), made.bytes = static_cast<double>(recv->bytes());
    } else {
      made.work = workOf(plan, program, step);
    }
    return made;
  }

  void addAction(const plan::Action &action) {
    ScriptAction made{.segment = action.segment(),
                      .microbatch = action.microbatch(),
                      .firstItem = script.items,
                      .waits = 0,
                      .waitsEnd = 0,
                      .sends = static_cast<uint32_t>(script.sends.size()),
                      .sendsEnd = 0};
    for (uint32_t i = 0; !gpu && i < length(action.wait_sends()); ++i)
      script.sends.push_back({action.wait_sends()->Get(i)->tag(), action.wait_sends()->Get(i)->microbatch()});
    made.sendsEnd = static_cast<uint32_t>(script.sends.size());
    script.items += static_cast<uint32_t>(script.segments[made.segment].steps.size());
    script.actions.push_back(made);
  }

  void addWaits(uint32_t index) {
    const plan::Action &action = *program.train()->Get(index);
    ScriptAction &made = script.actions[index];
    made.waits = static_cast<uint32_t>(script.waits.size());
    for (uint32_t i = 0; i < length(action.waits()); ++i) {
      const plan::Wait &wait = *action.waits()->Get(i);
      script.waits.push_back({wait.step(), script.actions[wait.on_action()].firstItem + wait.on_step()});
    }
    made.waitsEnd = static_cast<uint32_t>(script.waits.size());
    std::sort(script.waits.begin() + made.waits, script.waits.end(),
              [](const Script::Wait &a, const Script::Wait &b) { return a.step < b.step; });
  }

  const plan::Plan &plan;
  const plan::Program &program;
  const bool gpu;
  Script script;
};

} // namespace

Script makeScript(const plan::Plan &plan, const plan::Program &program, bool gpu) {
  return Writer(plan, program, gpu).write();
}

std::vector<TransferSeconds> scriptCosts(const Script &script, const RankClasses &ranks, const AlikeRanks &rankClass,
                                         const CostDevice &device) {
  std::vector<TransferSeconds> costs;
  costs.reserve(script.costs);
  const auto add = [&](TransferSeconds alone, uint32_t flow) {
    alone.moving *= ranks.flows[flow].stretch;
    costs.push_back(alone);
  };
  for (const ScriptSegment &segment : script.segments)
    for (const ScriptStep &step : segment.steps)
      if (step.kind == ScriptStep::Compute) {
        costs.push_back({stepCost(step.work, device).seconds(), 0});
      } else if (step.kind == ScriptStep::Collective) {
        const GroupUse &group = rankClass.groups[step.entry];
        add(collectiveCost(step.collective, step.bytes, group.links).seconds, group.meeting);
      } else {
        const PeerUse &peer = rankClass.peers[step.entry];
        add(messageSeconds(step.bytes, peer.link), step.kind == ScriptStep::Send ? peer.sent : peer.received);
      }
  return costs;
}

} // namespace cleave::partitioner
