// Builds the lists of actions with their waits, the lifetimes of slots, and the layouts.
#include "passes/export/Actions.h"

#include "passes/place/ArenaTimeline.h"
#include "runtime/base/Error.h"
#include "runtime/plan/Segments.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <set>

namespace cleave::passes {

using partitioner::SegmentKind;

namespace {

constexpr uint64_t alignment = 64;
uint64_t aligned(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct ActionDraft {
  size_t segment = 0;
  int64_t microbatch = 0;
  size_t item = 0; // index in the schedule
  std::vector<plan::SendId> waits;
};

/// What decides in which stream the collectives of a program run.
struct StreamRule {
  const Mesh &mesh;
  CollectiveStreams streams;
  bool same(const plan::CollectiveT &a, const plan::CollectiveT &b) const {
    const auto amongReplicas = [&](const plan::CollectiveT &one) {
      return !one.axes.empty() &&
             std::ranges::all_of(one.axes, [&](uint32_t axis) { return mesh.axes[axis].role() == AxisRole::Data; });
    };
    return streams != CollectiveStreams::Apart || amongReplicas(a) == amongReplicas(b);
  }
};

/// The last step that can run concurrently with a collective on a GPU: the one before the next collective of its
/// stream, or before the first step that touches a result. The collective's operands must not change until then;
/// otherwise steps in between would wait for the collective.
size_t lastBeside(const StreamRule &rule, const SegmentDraft &segment, size_t step,
                  const plan::CollectiveT &collective) {
  const auto touchesResult = [&](size_t later) {
    return std::ranges::any_of(collective.buffers, [&](const auto &buffer) {
      return std::ranges::find(segment.touched[later], buffer->out) != segment.touched[later].end();
    });
  };
  const auto follows = [&](size_t later) {
    const plan::CollectiveT *other = segment.segment->steps[later]->op.AsCollective();
    return other && rule.same(collective, *other);
  };
  size_t last = step;
  while (last + 1 < segment.touched.size() && !follows(last + 1) && !touchesResult(last + 1))
    ++last;
  return last;
}

SegmentUse useOf(const ProgramBuilder &builder, const SegmentDraft &segment, CollectiveStreams streams) {
  const StreamRule rule{builder.tables.mesh, streams};
  std::map<uint32_t, Touch> bySlot;
  for (size_t step = 0; step < segment.touched.size(); ++step) {
    const plan::CollectiveT *collective = segment.segment->steps[step]->op.AsCollective();
    const bool beside = streams != CollectiveStreams::None && collective;
    const size_t last = beside ? lastBeside(rule, segment, step, *collective) : step;
    for (uint32_t slot : segment.touched[step])
      if (builder.program->slots[slot]->space == plan::Space::Placed) {
        auto [found, fresh] = bySlot.try_emplace(slot, Touch{slot, static_cast<int64_t>(step), 0});
        found->second.last = std::max(found->second.last, static_cast<int64_t>(last));
      }
  }
  SegmentUse use{static_cast<int64_t>(segment.touched.size()), {}};
  for (auto &[slot, touch] : bySlot)
    use.touches.push_back(touch);
  return use;
}

/// One list of actions (train or eval).
class Pass {
public:
  Pass(ProgramBuilder &builder, OwnSchedule schedule, CollectiveStreams streams, bool tight)
      : builder(builder), sendWaits(schedule.waits) {
    for (size_t i = 0; i < schedule.items.size(); ++i)
      if (auto segment = find(schedule.items[i].segment))
        actions.push_back({*segment, schedule.items[i].microbatch, i, {}});
    addWaits();
    if (streams != CollectiveStreams::None) {
      holdGathered();
      reserveReceived();
      reserveSummed();
    }
    std::vector<SegmentUse> uses;
    for (const SegmentDraft &segment : builder.segments)
      uses.push_back(useOf(builder, segment, streams));
    std::vector<uint64_t> bytes;
    for (const auto &slot : builder.program->slots)
      bytes.push_back(slot->bytes);
    std::vector<TimedAction> timed;
    for (const ActionDraft &action : actions)
      timed.push_back({action.segment, action.microbatch, perMicrobatch(segmentOf(action).segment->kind)});
    timeline.emplace(timed, uses, holds, bytes, tight);
  }

  std::vector<ActionDraft> actions;
  std::optional<ArenaTimeline> timeline;

private:
  const SegmentDraft &segmentOf(const ActionDraft &action) const { return builder.segments[action.segment]; }

  std::optional<size_t> find(partitioner::SegmentId id) const {
    for (size_t i = 0; i < builder.segments.size(); ++i)
      if (builder.segments[i].id == id)
        return i;
    return std::nullopt;
  }

  /// The action that waits for a message that action `from` sends.
  std::optional<size_t> waitAction(size_t from, uint32_t tag) const {
    const size_t item = sendWaits.itemOf(builder.program->stage, tag, actions[from].microbatch);
    for (size_t i = from + 1; i < actions.size(); ++i)
      if (actions[i].item >= item)
        return i;
    return std::nullopt;
  }

  void addWaits() {
    const size_t scheduled = actions.size();
    for (size_t i = 0; i < scheduled; ++i)
      for (const SentMessage &message : segmentOf(actions[i]).sends) {
        auto at = waitAction(i, message.tag);
        if (!at) { // no later action: append one that only waits
          actions.push_back({finishSegment(), 0, SIZE_MAX, {}});
          at = actions.size() - 1;
        }
        actions[*at].waits.emplace_back(message.tag, static_cast<int32_t>(actions[i].microbatch));
        if (builder.slot(message.slot).space == plan::Space::Placed)
          holds.push_back({i, message.slot, *at});
      }
  }

  /// What the collectives of a beginning read stays in its place until an action has read the result. Passes before
  /// that, which run at the same time, would otherwise wait for the collective, because they write there.
  void holdGathered() {
    for (size_t i = 0; i < actions.size(); ++i) {
      const SegmentDraft &segment = segmentOf(actions[i]);
      if (segment.segment->kind != plan::SegmentKind::Begin)
        continue;
      for (const auto &step : segment.segment->steps)
        if (const plan::CollectiveT *collective = step->op.AsCollective())
          for (const auto &buffer : collective->buffers)
            if (const size_t until = firstUse(i + 1, buffer->out) + 1;
                until < actions.size() && builder.slot(buffer->in).space == plan::Space::Placed)
              holds.push_back({i, buffer->in, until});
    }
  }

  /// The first action from `from` on that touches a slot; the number of actions if there is none.
  size_t firstUse(size_t from, uint32_t slot) const {
    const auto touches = [&](const std::vector<uint32_t> &step) { return std::ranges::count(step, slot) > 0; };
    while (from < actions.size() && std::ranges::none_of(segmentOf(actions[from]).touched, touches))
      ++from;
    return from;
  }

  /// A message may arrive while the rank works with the one before it from the same peer, and the first one during the
  /// action before: nothing else uses its place from then on.
  void reserveReceived() {
    std::map<uint32_t, size_t> received; // peer -> the last action that received from it
    for (size_t i = 1; i < actions.size(); ++i) {
      const plan::SegmentT &segment = *segmentOf(actions[i]).segment;
      if (!perMicrobatch(segment.kind))
        continue;
      const std::map<uint32_t, size_t> before = received;
      for (const auto &step : segment.steps)
        if (const plan::RecvT *message = step->op.AsRecv()) {
          received[message->peer] = i;
          const auto last = before.find(message->peer);
          if (builder.slot(message->slot).space == plan::Space::Placed)
            holds.push_back({i, message->slot, last == before.end() ? i - 1 : last->second});
        }
    }
  }

  /// Sums of gradients run beside the backward pass that makes their operands: nothing else uses the place of a result
  /// from then on. The first sum that waits for its place would make all others wait.
  void reserveSummed() {
    for (size_t i = 1; i < actions.size(); ++i) {
      const plan::SegmentT &segment = *segmentOf(actions[i]).segment;
      if (segment.kind != plan::SegmentKind::Reduce)
        continue;
      for (const auto &step : segment.steps)
        if (const plan::CollectiveT *collective = step->op.AsCollective())
          for (const auto &buffer : collective->buffers)
            if (const auto made = lastUse(i, buffer->in);
                made && buffer->out != buffer->in && builder.slot(buffer->out).space == plan::Space::Placed)
              holds.push_back({i, buffer->out, made->first, made->second});
    }
  }

  /// The last action before `end` that touches a slot, and its last step that does.
  std::optional<std::pair<size_t, int64_t>> lastUse(size_t end, uint32_t slot) const {
    for (size_t i = end; i-- > 0;) {
      const auto &touched = segmentOf(actions[i]).touched;
      for (size_t step = touched.size(); step-- > 0;)
        if (std::ranges::count(touched[step], slot) > 0)
          return std::pair(i, static_cast<int64_t>(step));
    }
    return std::nullopt;
  }

  size_t finishSegment() {
    if (auto found = find({SegmentKind::Finish}))
      return *found;
    builder.newSegment({SegmentKind::Finish});
    return builder.segments.size() - 1;
  }

  ProgramBuilder &builder;
  const SendWaits &sendWaits;
  std::vector<Hold> holds;
};

/// Values of one iteration that several segments access need memory only as long as they are read, if the iteration has
/// one microbatch: gradients, from the backward pass to the update, and working copies of parameters. Those of several
/// microbatches are in use almost from the beginning to the end.
void placeIterationValues(ProgramBuilder &builder, const OwnSchedule &train, const OwnSchedule &eval) {
  const auto several = [](const OwnSchedule &schedule) {
    return std::ranges::any_of(schedule.items, [](const auto &item) { return item.microbatch > 0; });
  };
  if (several(train))
    return;
  std::set<uint32_t> values, results;
  for (const auto &metric : builder.program->metrics) // read after the iteration
    results.insert(metric->slot);
  for (uint32_t i = 0; i < builder.program->slots.size(); ++i) {
    plan::SlotT &slot = builder.slot(i);
    if (slot.space != plan::Space::Persistent || slot.tensor < 0 || results.contains(i))
      continue;
    const plan::TensorKind kind = builder.tables.at(static_cast<uint32_t>(slot.tensor)).kind;
    if (kind == plan::TensorKind::Gradient || (kind == plan::TensorKind::Activation && !several(eval))) {
      slot.space = plan::Space::Placed;
      values.insert(i);
    }
  }
  for (SegmentDraft &draft : builder.segments) {
    std::set<uint32_t> placed(draft.segment->slots.begin(), draft.segment->slots.end());
    for (const auto &touched : draft.touched)
      std::ranges::copy_if(touched, std::inserter(placed, placed.end()),
                           [&](uint32_t slot) { return values.contains(slot); });
    draft.segment->slots.assign(placed.begin(), placed.end());
  }
}

/// Places persistent slots consecutively; returns their total size in bytes.
uint64_t placePersistent(ProgramBuilder &builder) {
  uint64_t bytes = 0;
  for (auto &slot : builder.program->slots)
    if (slot->space == plan::Space::Persistent) {
      slot->offset = bytes;
      bytes += aligned(slot->bytes);
    }
  return bytes;
}

class LayoutTable {
public:
  LayoutTable(ProgramBuilder &builder, uint64_t persistentBytes) : builder(builder), persistentBytes(persistentBytes) {}

  /// Places the inputs that these actions read: one place per slot and microbatch.
  void placeInputs(const Pass &pass) {
    for (const ActionDraft &action : pass.actions)
      for (uint32_t slot : builder.segments[action.segment].segment->slots)
        if (builder.slot(slot).space == plan::Space::Input &&
            inputs.try_emplace({slot, action.microbatch}, inputBytes).second)
          inputBytes += aligned(builder.slot(slot).bytes);
  }

  std::vector<std::unique_ptr<plan::ActionT>> actions(const Pass &pass) {
    std::vector<std::unique_ptr<plan::ActionT>> list;
    for (size_t i = 0; i < pass.actions.size(); ++i) {
      const ActionDraft &draft = pass.actions[i];
      auto action = std::make_unique<plan::ActionT>();
      action->segment = static_cast<uint32_t>(draft.segment);
      action->microbatch = static_cast<int32_t>(draft.microbatch);
      action->layout = layout(pass, i);
      action->wait_sends = draft.waits;
      list.push_back(std::move(action));
    }
    return list;
  }

  uint64_t inputBytes = 0;

private:
  uint32_t layout(const Pass &pass, size_t action) {
    const ActionDraft &draft = pass.actions[action];
    std::vector<uint64_t> offsets;
    for (uint32_t slot : builder.segments[draft.segment].segment->slots)
      offsets.push_back(builder.slot(slot).space == plan::Space::Input
                            ? inputs.at({slot, draft.microbatch})
                            : persistentBytes + pass.timeline->offset(slot, action));
    auto &layouts = builder.program->layouts;
    auto [found, fresh] = known.try_emplace(offsets, static_cast<uint32_t>(layouts.size()));
    if (fresh)
      layouts.emplace_back(std::make_unique<plan::LayoutT>())->offsets = offsets;
    return found->second;
  }

  ProgramBuilder &builder;
  uint64_t persistentBytes;
  std::map<std::pair<uint32_t, int64_t>, uint64_t> inputs;
  std::map<std::vector<uint64_t>, uint32_t> known;
};

constexpr uint64_t mostBytes = uint64_t(1) << 46; // more than the memory of any machine

void refuseHugeArena(const ProgramBuilder &builder) {
  const plan::ProgramT &program = *builder.program;
  if (program.peak_bytes <= mostBytes)
    return;
  const auto &largest = **std::max_element(program.slots.begin(), program.slots.end(),
                                           [](const auto &a, const auto &b) { return a->bytes < b->bytes; });
  throw userError(
      fmt::format("a rank of stage {} would take {:.1f} TiB, and no machine has more than {} TiB of memory; "
                  "the largest of its tensors is {} of \"{}\"",
                  program.stage, static_cast<double>(program.peak_bytes) / (uint64_t(1) << 40), mostBytes >> 40,
                  fmt::join(largest.shape, "x"), largest.name));
}

} // namespace

void writeActions(ProgramBuilder &builder, OwnSchedule train, OwnSchedule eval, CollectiveStreams streams, bool tight) {
  placeIterationValues(builder, train, eval);
  Pass training(builder, train, streams, tight), evaluation(builder, eval, streams, tight);
  uint64_t persistent = placePersistent(builder);
  LayoutTable layouts(builder, persistent);
  layouts.placeInputs(training);
  layouts.placeInputs(evaluation);
  plan::ProgramT &program = *builder.program;
  program.train = layouts.actions(training);
  program.eval = layouts.actions(evaluation);
  for (SegmentDraft &draft : builder.segments)
    program.segments.push_back(std::move(draft.segment));
  program.input_bytes = layouts.inputBytes;
  program.arena_bytes =
      persistent + std::max(training.timeline->placement().bytes, evaluation.timeline->placement().bytes);
  program.peak_bytes = program.arena_bytes + 2 * program.input_bytes;
  program.lower_bound_bytes =
      persistent + std::max(training.timeline->placement().lowerBound, evaluation.timeline->placement().lowerBound) +
      2 * program.input_bytes;
  refuseHugeArena(builder);
}

} // namespace cleave::passes
