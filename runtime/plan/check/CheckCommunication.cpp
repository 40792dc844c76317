// Executes all ranks symbolically. Each rank has a list of collectives, sends, receives and waits, and advances until
// it must wait for another rank. A send only starts; a receive waits for its message, a wait for the receiver, a
// collective for all members. If no rank can advance and some are not finished, the plan would deadlock.
#include "runtime/base/RankWalk.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

namespace cleave::check {

namespace {

struct Event {
  uint32_t step;
  const plan::Collective *collective = nullptr;
  const plan::Send *send = nullptr;
  const plan::Recv *recv = nullptr;
};

struct MessageKey {
  uint32_t sender, receiver, tag;
  int32_t microbatch;
  auto operator<=>(const MessageKey &) const = default;
};

struct Meeting {
  std::vector<uint32_t> members;
  std::vector<uint32_t> arrived;
};

/// A rank's position in its action: first the waits, then the events.
struct Cursor {
  uint32_t wait = 0, event = 0;
  bool waiting = false; ///< in a collective
};

std::string describe(const plan::Collective &op) {
  std::vector<std::string> counts;
  for (uint32_t i = 0; i < length(op.buffers()); ++i) {
    const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
    counts.push_back(length(b.sizes()) ? fmt::format("{}x[{}]x{}", b.outer(), fmt::join(*b.sizes(), ","), b.inner())
                                       : fmt::format("{}", b.count()));
  }
  return fmt::format("{} {} of {} {}", EnumNameCollectiveKind(op.kind()), EnumNameReduceKind(op.reduce()),
                     fmt::join(counts, " + "), EnumNameDType(op.dtype()));
}

bool same(const plan::Collective &a, const plan::Collective &b) {
  if (a.kind() != b.kind() || a.dtype() != b.dtype() || length(a.buffers()) != length(b.buffers()))
    return false;
  bool reduces = a.kind() == plan::CollectiveKind::AllReduce || a.kind() == plan::CollectiveKind::ReduceScatter;
  bool shares = a.kind() == plan::CollectiveKind::AllGather || a.kind() == plan::CollectiveKind::ReduceScatter;
  if (reduces && a.reduce() != b.reduce())
    return false;
  for (uint32_t i = 0; i < length(a.buffers()); ++i) {
    const plan::CollectiveBuffer &x = *a.buffers()->Get(i), &y = *b.buffers()->Get(i);
    if (!shares && x.count() != y.count())
      return false;
    if (shares && (x.outer() != y.outer() || x.inner() != y.inner() ||
                   !std::equal(x.sizes()->begin(), x.sizes()->end(), y.sizes()->begin(), y.sizes()->end())))
      return false;
  }
  return true;
}

class Simulation {
public:
  Simulation(const plan::Plan &plan, bool eval, Defects &defects)
      : plan(plan), eval(eval), defects(defects), cursors(length(plan.ranks())), walk(cursors.size()) {
    for (uint32_t p = 0; p < length(plan.programs()); ++p)
      programs.push_back(eventsOf(*plan.programs()->Get(p)));
  }

  void run() {
    walk.run([&](size_t rank, size_t action) {
      const auto *actions = actionsOf(uint32_t(rank));
      return !broken && !defects.full() && action < length(actions) &&
             perform(uint32_t(rank), *actions->Get(uint32_t(action)));
    });
    if (broken || defects.full())
      return;
    bool stuck = false;
    for (uint32_t r = 0; r < cursors.size(); ++r)
      if (walk.done(r) < length(actionsOf(r))) {
        defects.add("{}: rank {} waits forever: {}", entry(), r, waitsFor(r));
        stuck = true;
      }
    for (auto &[key, queue] : messages)
      if (!queue.empty() && !stuck)
        defects.add("{}: rank {} sends message {} of microbatch {} to rank {}, which never receives it", entry(),
                    key.sender, key.tag, key.microbatch, key.receiver);
  }

private:
  struct Sent {
    uint64_t bytes;
    const plan::Slot *slot;
    uint32_t channel;
  };
  using SegmentEvents = std::vector<std::vector<Event>>;

  static SegmentEvents eventsOf(const plan::Program &program) {
    SegmentEvents segments;
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      auto &events = segments.emplace_back();
      const auto *steps = program.segments()->Get(s)->steps();
      for (uint32_t i = 0; i < length(steps); ++i) {
        const plan::Step &step = *steps->Get(i);
        Event event{i, step.op_as_Collective(), step.op_as_Send(), step.op_as_Recv()};
        if (event.collective || event.send || event.recv)
          events.push_back(event);
      }
    }
    return segments;
  }

  const plan::Slot &slotOf(uint32_t rank, uint32_t slot) const {
    return *plan.programs()->Get(rankAt(rank).program())->slots()->Get(slot);
  }

  /// Whether two slots have equal element counts and types. If neither is an activation, they must also belong to the
  /// same tensor (stages name and shape activations differently), or be gradients: those of two parameters may be one
  /// value, as in x + p + q.
  bool sameValue(const plan::Slot &a, const plan::Slot &b) const {
    const auto kindOf = [&](const plan::Slot &slot) {
      return slot.tensor() < 0 ? plan::TensorKind::Activation
                               : plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->kind();
    };
    return a.dtype() == b.dtype() && elementsOf(a) == elementsOf(b) &&
           (kindOf(a) == plan::TensorKind::Activation || kindOf(b) == plan::TensorKind::Activation ||
            a.tensor() == b.tensor() ||
            (kindOf(a) == plan::TensorKind::Gradient && kindOf(b) == plan::TensorKind::Gradient));
  }

  std::string describe(const plan::Slot &slot) const {
    const auto *name =
        slot.tensor() < 0 ? slot.name() : plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->name();
    return fmt::format("{} [{}] of {}", text(name),
                       slot.shape() ? fmt::format("{}", fmt::join(*slot.shape(), ", ")) : "",
                       EnumNameDType(slot.dtype()));
  }

  const plan::Rank &rankAt(uint32_t rank) const { return *plan.ranks()->Get(rank); }
  const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actionsOf(uint32_t rank) const {
    const plan::Program *program = plan.programs()->Get(rankAt(rank).program());
    return eval ? program->eval() : program->train();
  }
  /// The action that a rank performs.
  const plan::Action &actionOf(uint32_t rank) const { return *actionsOf(rank)->Get(uint32_t(walk.done(rank))); }
  const Event &current(uint32_t rank) const {
    return programs[rankAt(rank).program()][actionOf(rank).segment()][cursors[rank].event];
  }
  const char *entry() const { return eval ? "eval" : "train"; }
  std::string place(uint32_t rank) const {
    const plan::Action &action = actionOf(rank);
    uint32_t program = rankAt(rank).program();
    return fmt::format("microbatch {}, {}", action.microbatch(),
                       placeOf(program, *plan.programs()->Get(program), action.segment(), current(rank).step));
  }

  /// Performs an action, from the place where the rank waited; returns false if it must wait.
  bool perform(uint32_t rank, const plan::Action &action) {
    Cursor &cursor = cursors[rank];
    if (cursor.waiting)
      return false;
    for (; cursor.wait < length(action.wait_sends()); ++cursor.wait)
      if (!received(rank, *action.wait_sends()->Get(cursor.wait)))
        return false;
    const auto &events = programs[rankAt(rank).program()][action.segment()];
    for (; cursor.event < events.size(); ++cursor.event) {
      const Event &event = events[cursor.event];
      if (event.send)
        send(rank, *event.send, action.microbatch());
      else if (!(event.collective ? meet(rank, *event.collective) : receive(rank, *event.recv, action.microbatch())))
        return false;
    }
    cursor = {};
    return true;
  }

  void send(uint32_t rank, const plan::Send &send, int32_t microbatch) {
    MessageKey key{rank, rankAt(rank).peers()->Get(send.peer()), send.tag(), microbatch};
    messages[key].push_back({send.bytes(), &slotOf(rank, send.slot()), send.channel()});
    ++started[{rank, rank, key.tag, key.microbatch}];
    walk.wake(key.receiver);
  }

  bool received(uint32_t rank, const plan::SendId &id) {
    auto found = started.find({rank, rank, id.tag(), id.microbatch()});
    if (found == started.end()) {
      defects.add("{}: rank {}, action {}: waits for message {} of microbatch {}, which it has not started", entry(),
                  rank, walk.done(rank), id.tag(), id.microbatch());
      broken = true;
      return false;
    }
    return found->second == 0;
  }

  bool receive(uint32_t rank, const plan::Recv &recv, int32_t microbatch) {
    MessageKey key{rankAt(rank).peers()->Get(recv.peer()), rank, recv.tag(), microbatch};
    auto found = messages.find(key);
    if (found == messages.end() || found->second.empty())
      return false;
    const Sent &sent = found->second.front();
    if (sent.bytes != recv.bytes())
      defects.add("{}: rank {}, {}: receives {} bytes of message {} from rank {}, which sends {}", entry(), rank,
                  place(rank), recv.bytes(), recv.tag(), key.sender, sent.bytes);
    else if (sent.channel != recv.channel())
      defects.add("{}: rank {}, {}: receives message {} from rank {} on channel {}, which sends it on channel {}",
                  entry(), rank, place(rank), recv.tag(), key.sender, recv.channel(), sent.channel);
    else if (const plan::Slot &slot = slotOf(rank, recv.slot()); !sameValue(*sent.slot, slot)) {
      Rule rule(defects, "C3");
      defects.add("{}: rank {}, {}: receives {} as message {} from rank {}, which sends {}", entry(), rank, place(rank),
                  describe(slot), recv.tag(), key.sender, describe(*sent.slot));
    }
    found->second.pop_front();
    --started[{key.sender, key.sender, key.tag, key.microbatch}];
    walk.wake(key.sender);
    return true;
  }

  Meeting &meetingOf(uint32_t group) {
    std::vector<uint32_t> members(plan.groups()->Get(group)->ranks()->begin(),
                                  plan.groups()->Get(group)->ranks()->end());
    Meeting &meeting = meetings[members]; // groups with equal members are one group
    meeting.members = members;
    return meeting;
  }

  bool meet(uint32_t rank, const plan::Collective &op) {
    Meeting &meeting = meetingOf(rankAt(rank).groups()->Get(op.group()));
    if (!meeting.arrived.empty()) {
      uint32_t first = meeting.arrived[0];
      const plan::Collective &other = *current(first).collective;
      if (!same(op, other)) {
        defects.add("{}: rank {}, {}: starts {}, while rank {}, {}, starts {}", entry(), rank, place(rank),
                    check::describe(op), first, place(first), check::describe(other));
        broken = true;
        return false;
      }
    }
    if (meeting.arrived.size() + 1 < meeting.members.size()) {
      meeting.arrived.push_back(rank);
      cursors[rank].waiting = true;
      return false;
    }
    for (uint32_t member : meeting.arrived) {
      cursors[member].waiting = false;
      ++cursors[member].event;
      walk.wake(member);
    }
    meeting.arrived.clear();
    return true;
  }

  std::string waitsFor(uint32_t rank) {
    const plan::Action &action = actionOf(rank);
    if (cursors[rank].wait < length(action.wait_sends())) {
      const plan::SendId *id = action.wait_sends()->Get(cursors[rank].wait);
      return fmt::format("action {}: for its message {} of microbatch {} to be received", walk.done(rank), id->tag(),
                         id->microbatch());
    }
    const Event &event = current(rank);
    if (event.recv)
      return fmt::format("{}: for message {} from rank {}", place(rank), event.recv->tag(),
                         rankAt(rank).peers()->Get(event.recv->peer()));
    Meeting &meeting = meetingOf(rankAt(rank).groups()->Get(event.collective->group()));
    std::vector<uint32_t> absent;
    for (uint32_t member : meeting.members)
      if (std::find(meeting.arrived.begin(), meeting.arrived.end(), member) == meeting.arrived.end())
        absent.push_back(member);
    return fmt::format("{}: for ranks {} to join {}", place(rank), fmt::join(absent, ", "),
                       check::describe(*event.collective));
  }

  const plan::Plan &plan;
  bool eval;
  Defects &defects;
  bool broken = false;
  std::vector<SegmentEvents> programs;
  std::vector<Cursor> cursors;
  RankWalk walk;                                   ///< its items are the actions
  std::map<MessageKey, std::deque<Sent>> messages; ///< messages in flight
  std::map<MessageKey, int64_t> started;           ///< by (sender, sender, tag, microbatch): not yet received
  std::map<std::vector<uint32_t>, Meeting> meetings;
};

} // namespace

void checkCommunication(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "C1");
  for (bool eval : {false, true})
    Simulation(plan, eval, defects).run();
}

} // namespace cleave::check
