// Follows the streams of every class until none can continue, then the transfers until one ends.
//
// The end of a step depends only on the ends of earlier steps and, if it is a transfer that shares links, on transfers
// at the same time. A stream is followed until it waits for a step whose end is unknown; then other streams are
// followed. When all of them wait, the transfer that ends next is the earliest thing that can happen: whatever begins
// later depends on it or on a transfer that ends after it.
#include "partitioner/simulate/Simulate.h"

#include "partitioner/simulate/Intervals.h"
#include "partitioner/simulate/Script.h"
#include "runtime/base/Error.h"
#include "runtime/base/RankWalk.h"
#include "runtime/plan/Backend.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <unordered_map>

namespace cleave::partitioner {

using check::length;

namespace {

constexpr double unknown = -1;

/// The next step of a stream of a class.
struct Cursor {
  uint32_t action = 0, position = 0; ///< position: in ScriptSegment::byStream
  uint32_t wait = 0;                 ///< index of Script::waits
  double clock = 0;
  bool posted = false; ///< this rank has reached the collective or message, and waits for others
  uint32_t meeting = 0, occurrence = 0;
};

struct ClassState {
  const AlikeRanks *info = nullptr;
  const Script *script = nullptr;
  std::vector<TransferSeconds> costs;
  std::vector<double> ends;
  std::vector<Cursor> cursors;       ///< by stream
  std::vector<uint32_t> occurrences; ///< per group entry: number of collectives reached
  Intervals computing, communicating, working;
  double first = INFINITY, last = 0; ///< of forward and backward passes
  ClassTimes times;
  std::vector<StepSpan> spans;
};

/// A collective of a meeting that some members have reached.
struct Gathering {
  uint32_t missing = 0;
  double begin = 0, end = unknown;
};

struct MessageKey {
  uint32_t sender, tag;
  int32_t microbatch;
  bool operator==(const MessageKey &) const = default;
};
struct MessageHash {
  size_t operator()(const MessageKey &key) const {
    uint64_t h = (uint64_t{key.sender} << 32 | key.tag) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>((h ^ (h >> 29) ^ static_cast<uint32_t>(key.microbatch)) * 0xbf58476d1ce4e5b9u);
  }
};
struct Message {
  double sent = unknown, awaited = unknown, begin = unknown, end = unknown;
  uint32_t sender = 0, receiver = 0; ///< classes
};

/// A transfer whose end is unknown: of a message, or (null) of a collective.
struct Moving {
  Message *message;
  uint32_t meeting, occurrence;
};

class Simulator {
public:
  Simulator(const plan::Plan &plan, const Cluster &cluster, const SimulateOptions &options)
      : options(options),
        gpu(backendOf(plan) == Target::Kind::Cuda), result{.ranks = classifyRanks(plan, cluster, options.devices,
                                                                                  options.table)},
        traffic(result.ranks.flows, result.ranks.links, options.traffic ? &result.traffic : nullptr),
        walk(result.ranks.classes.size()) {
    gatherings.resize(result.ranks.meetings.size());
    for (const AlikeRanks &one : result.ranks.classes) {
      auto [script, added] = scripts.try_emplace(one.program);
      if (added)
        script->second = makeScript(plan, *plan.programs()->Get(one.program), gpu);
      ClassState &state = states.emplace_back();
      state.info = &one;
      state.script = &script->second;
      state.costs = scriptCosts(script->second, result.ranks, one, CostDevice(cluster.devices[one.kind]));
      state.ends.assign(script->second.items, unknown);
      state.cursors.resize(script->second.streams.size());
      state.occurrences.resize(one.groups.size());
    }
  }

  Simulation run() {
    do {
      walk.run([&](size_t c, size_t) {
        bool moved = false;
        for (uint32_t stream = 0; stream < states[c].cursors.size(); ++stream)
          moved |= follow(uint32_t(c), stream);
        return moved;
      });
    } while (endTransfer());
    for (ClassState &state : states) {
      refuseStuck(state);
      finish(state);
    }
    for (const ClassState &state : states)
      for (const Cursor &cursor : state.cursors)
        result.stepSeconds = std::max(result.stepSeconds, cursor.clock);
    conclude();
    return std::move(result);
  }

private:
  /// Moves a cursor to the next step of its stream; false at the end of the list. On hosts stops at actions that wait
  /// for sends, even those without steps.
  bool atStep(uint32_t c, Cursor &cursor, uint32_t stream) {
    const Script &script = *states[c].script;
    while (cursor.action < script.actions.size()) {
      const ScriptAction &action = script.actions[cursor.action];
      if (cursor.position == 0)
        cursor.wait = std::max(cursor.wait, action.waits);
      if (cursor.position < script.segments[action.segment].byStream[stream].size())
        return true;
      if (!gpu && cursor.position == 0 && !sendsEnded(c, cursor))
        return false;
      ++cursor.action;
      cursor.position = 0;
    }
    return false;
  }

  /// Whether the messages that the cursor's action waits for have arrived; if so, advances the clock to their arrival.
  bool sendsEnded(uint32_t c, Cursor &cursor) {
    const Script &script = *states[c].script;
    const ScriptAction &action = script.actions[cursor.action];
    for (uint32_t i = action.sends; i < action.sendsEnd; ++i) {
      const Message &message = messages[{c, script.sends[i].tag, script.sends[i].microbatch}];
      if (message.end == unknown)
        return false;
      cursor.clock = std::max(cursor.clock, message.end);
    }
    return true;
  }

  /// Follows a stream until it waits for something unknown. Returns whether it executed a step.
  bool follow(uint32_t c, uint32_t stream) {
    ClassState &state = states[c];
    const Script &script = *state.script;
    Cursor &cursor = state.cursors[stream];
    bool moved = false;
    while (atStep(c, cursor, stream)) {
      const ScriptAction &action = script.actions[cursor.action];
      const ScriptSegment &segment = script.segments[action.segment];
      const uint32_t index = segment.byStream[stream][cursor.position];
      if (!gpu && cursor.position == 0 && !sendsEnded(c, cursor))
        return moved;
      double ready = cursor.clock;
      while (cursor.wait < action.waitsEnd && script.waits[cursor.wait].step < index)
        ++cursor.wait;
      for (uint32_t w = cursor.wait; w < action.waitsEnd && script.waits[w].step == index; ++w) {
        const double end = state.ends[script.waits[w].item];
        if (end == unknown)
          return moved;
        ready = std::max(ready, end);
      }
      if (!execute(c, cursor, action, segment, index, ready))
        return moved;
      state.ends[action.firstItem + index] = cursor.clock;
      ++cursor.position;
      moved = true;
    }
    return moved;
  }

  /// Executes a step that is ready; false if it waits for other ranks.
  bool execute(uint32_t c, Cursor &cursor, const ScriptAction &action, const ScriptSegment &segment, uint32_t index,
               double ready) {
    ClassState &state = states[c];
    const ScriptStep &step = segment.steps[index];
    const TransferSeconds cost = state.costs[segment.firstCost + index];
    double begin = ready, end = ready + cost.all();
    switch (step.kind) {
    case ScriptStep::Compute:
      break;
    case ScriptStep::Collective:
      if (!meet(c, cursor, step, ready, cost, begin, end))
        return false;
      state.times.collectives += end - begin;
      break;
    case ScriptStep::Send:
    case ScriptStep::Recv:
      if (!exchange(c, cursor, step, action.microbatch, ready, cost, begin, end))
        return false;
      state.times.messages += end - begin;
      break;
    }
    note(state, step, segment.pipeline, begin, end);
    if (options.timeline)
      record(state, cursor, step, index, begin, end);
    cursor.clock = end;
    return true;
  }

  /// Reaches a collective; true once all members have reached it.
  bool meet(uint32_t c, Cursor &cursor, const ScriptStep &step, double ready, const TransferSeconds &cost,
            double &begin, double &end) {
    ClassState &state = states[c];
    const uint32_t meeting = state.info->groups[step.entry].meeting;
    const auto &members = result.ranks.meetings[meeting].members;
    if (members.size() <= 1 && result.ranks.flows[meeting].uses.empty()) { // nothing to wait for
      noteTraffic(meeting, begin, cost);
      return true;
    }
    if (!cursor.posted) {
      cursor.posted = true;
      cursor.occurrence = state.occurrences[state.info->groups[step.entry].first]++;
      auto &list = gatherings[meeting];
      if (list.size() <= cursor.occurrence)
        list.resize(cursor.occurrence + 1, Gathering{static_cast<uint32_t>(members.size()), 0, unknown});
      Gathering &gathering = list[cursor.occurrence];
      gathering.begin = std::max(gathering.begin, ready);
      if (--gathering.missing == 0)
        begins({nullptr, meeting, cursor.occurrence}, meeting, gathering.begin, cost);
    }
    const Gathering &gathering = gatherings[meeting][cursor.occurrence];
    if (gathering.end == unknown)
      return false;
    cursor.posted = false;
    begin = gathering.begin;
    end = gathering.end;
    return true;
  }

  /// Reaches a message; true once both ends have reached it, or at once for the sender on a host.
  bool exchange(uint32_t c, Cursor &cursor, const ScriptStep &step, int32_t microbatch, double ready,
                const TransferSeconds &cost, double &begin, double &end) {
    const PeerUse &peer = states[c].info->peers[step.entry];
    const uint32_t other = peer.peerClass;
    const bool sends = step.kind == ScriptStep::Send;
    Message &message = messages[{sends ? c : other, step.tag, microbatch}];
    if (!cursor.posted) {
      cursor.posted = true;
      double &arrival = sends ? message.sent : message.awaited;
      if (arrival == unknown) // several ranks of a class may exchange the same message with one rank
        arrival = ready;
      if (message.begin == unknown && message.sent != unknown && message.awaited != unknown) {
        message.begin = std::max(message.sent, message.awaited);
        message.sender = sends ? c : other, message.receiver = sends ? other : c;
        begins({&message, 0, 0}, sends ? peer.sent : peer.received, message.begin, cost);
      }
    }
    if (sends && !gpu) { // a host sends in the background
      cursor.posted = false;
      begin = end = ready;
      return true;
    }
    if (message.end == unknown)
      return false;
    cursor.posted = false;
    begin = message.begin;
    end = message.end;
    return true;
  }

  /// A transfer of `flow` begins, when all of its ranks have reached it.
  void begins(const Moving &moving, uint32_t flow, double begin, const TransferSeconds &cost) {
    const double end = begin + cost.all();
    if (result.ranks.flows[flow].uses.empty()) { // nothing slows it
      noteTraffic(flow, begin, cost);
      return ends(moving, end);
    }
    const uint32_t number = traffic.add(flow, begin + cost.fixed, cost.moving);
    moves.resize(number + 1, moving);
  }

  /// Notes a transfer at full speed.
  void noteTraffic(uint32_t flow, double begin, const TransferSeconds &cost) {
    if (options.traffic && cost.moving > 0)
      result.traffic.push_back({flow, begin + cost.fixed, begin + cost.all(), 1});
  }

  void ends(const Moving &moving, double end) {
    if (moving.message) {
      moving.message->end = end;
      walk.wake(moving.message->receiver);
      walk.wake(moving.message->sender);
      return;
    }
    gatherings[moving.meeting][moving.occurrence].end = end;
    for (const Meeting::Member &member : result.ranks.meetings[moving.meeting].members)
      walk.wake(member.rankClass);
  }

  /// Follows the transfers until one ends; false if there is none.
  bool endTransfer() {
    const std::optional<Traffic::Ended> ended = traffic.next();
    if (ended)
      ends(moves[ended->transfer], ended->time);
    return ended.has_value();
  }

  void note(ClassState &state, const ScriptStep &step, bool pipeline, double begin, double end) {
    const bool computes = step.kind == ScriptStep::Compute;
    (computes ? state.computing : state.communicating).add(begin, end);
    if (computes)
      state.times.byWork[static_cast<size_t>(step.work.kind)] += end - begin;
    if (!pipeline)
      return;
    if (computes || step.kind == ScriptStep::Collective) {
      state.working.add(begin, end);
      state.first = std::min(state.first, begin);
      state.last = std::max(state.last, end);
    }
  }

  void record(ClassState &state, const Cursor &cursor, const ScriptStep &step, uint32_t index, double begin,
              double end) {
    if (end > begin)
      state.spans.push_back({cursor.action, index, state.script->streams[step.stream], begin, end});
  }

  void refuseStuck(const ClassState &state) const {
    for (const Cursor &cursor : state.cursors)
      if (cursor.action < state.script->actions.size())
        throw environmentError(fmt::format("the plan's ranks wait for each other without end: rank {} stops in action "
                                           "{} of {}; cleave verify says why",
                                           state.info->representative, cursor.action, state.script->actions.size()));
  }

  static void finish(ClassState &state) {
    state.computing.merge();
    state.communicating.merge();
    state.working.merge();
    state.times.busy = state.computing.length();
    state.times.hidden = state.communicating.overlap(state.computing);
    state.times.communication = state.communicating.length() - state.times.hidden;
    state.times.work = state.working.length();
    state.times.span = std::max(0.0, state.last - state.first);
    for (const ScriptAction &action : state.script->actions)
      state.times.flops += state.script->segments[action.segment].flops;
  }

  void conclude() {
    double span = 0, work = 0;
    for (ClassState &state : states) {
      const double idle = result.stepSeconds - state.times.busy - state.times.communication;
      state.times.idle = idle > 1e-12 * result.stepSeconds ? idle : 0; // otherwise what rounding leaves of sums
      result.flops += state.times.flops * state.info->ranks;
      result.times.push_back(state.times);
      if (options.timeline)
        result.timeline.push_back(std::move(state.spans));
    }
    for (const ClassTimes &times : result.times) {
      span = std::max(span, times.span);
      work = std::max(work, times.work);
    }
    result.bubbleFraction = span > 0 ? 1 - work / span : 0;
  }

  const SimulateOptions options;
  const bool gpu;
  Simulation result;
  std::map<uint32_t, Script> scripts; ///< by program
  std::deque<ClassState> states;
  std::vector<std::vector<Gathering>> gatherings; ///< by meeting
  std::unordered_map<MessageKey, Message, MessageHash> messages;
  Traffic traffic;
  std::vector<Moving> moves; ///< by number of the transfer
  RankWalk walk;             ///< over the classes
};

} // namespace

Simulation simulate(const plan::Plan &plan, const Cluster &cluster, const SimulateOptions &options) {
  return Simulator(plan, cluster, options).run();
}

} // namespace cleave::partitioner
