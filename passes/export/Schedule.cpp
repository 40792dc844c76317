// Actions, waits, frames, lifetimes, layouts.
#include "passes/export/Schedule.h"

#include "passes/place/Place.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

namespace cleave::passes {

namespace {

constexpr uint64_t alignment = 64;
uint64_t aligned(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

struct ActionDraft {
  size_t segment = 0;
  int64_t microbatch = 0, frame = 0;
  bool perMicrobatch = true;
  std::vector<plan::SendId> waits;
};

/// A time within a pass: an action, and 0 for its waits or 1 + step.
struct Moment {
  size_t action = 0;
  int64_t offset = 0;
  auto operator<=>(const Moment &) const = default;
};

/// First and last step of a segment that touch a slot.
struct Touch {
  uint32_t slot = 0;
  int64_t first = 0, last = 0;
};

std::vector<Touch> touches(const SegmentDraft &segment) {
  std::map<uint32_t, Touch> bySlot;
  for (size_t step = 0; step < segment.touched.size(); ++step)
    for (uint32_t slot : segment.touched[step]) {
      auto [found, fresh] = bySlot.try_emplace(slot, Touch{slot, static_cast<int64_t>(step), 0});
      found->second.last = static_cast<int64_t>(step);
    }
  std::vector<Touch> list;
  for (auto &[slot, touch] : bySlot)
    list.push_back(touch);
  return list;
}

/// One list of actions (train or eval) and its placement.
class Pass {
public:
  Pass(ProgramBuilder &builder, const std::vector<partitioner::ScheduleItem> &items) : builder(builder) {
    for (const auto &item : items)
      if (auto segment = find(item.segment))
        append(*segment, item.microbatch);
    addWaits();
    assignFrames();
    assignWindows();
    placeSlots();
  }

  std::vector<ActionDraft> actions;
  Placement placement;
  /// Offset of a placed slot in the action's frame, relative to the placed part of the arena.
  uint64_t offset(uint32_t slot, const ActionDraft &action) const {
    return placement.offsets[objects.at(key(slot, action.frame))];
  }

private:
  const SegmentDraft &segmentOf(const ActionDraft &action) const { return builder.segments[action.segment]; }

  std::optional<size_t> find(const std::string &name) const {
    for (size_t i = 0; i < builder.segments.size(); ++i)
      if (builder.segments[i].name == name)
        return i;
    return std::nullopt;
  }

  static bool concludes(plan::SegmentKind kind) {
    return kind == plan::SegmentKind::Reduce || kind == plan::SegmentKind::Update;
  }

  void append(size_t segment, int64_t microbatch) {
    plan::SegmentKind kind = builder.segments[segment].segment->kind;
    ActionDraft &action = actions.emplace_back();
    action.segment = segment;
    action.microbatch = microbatch;
    action.perMicrobatch = !concludes(kind) && kind != plan::SegmentKind::Begin;
  }

  /// Where the messages that action `from` starts to send are waited for.
  std::optional<size_t> waitAction(size_t from) const {
    const std::string &name = segmentOf(actions[from]).name;
    auto next = [&](const std::string &segment, int64_t microbatch) -> std::optional<size_t> {
      for (size_t i = from + 1; i < actions.size(); ++i)
        if (segmentOf(actions[i]).name == segment && actions[i].microbatch == microbatch)
          return i;
      return std::nullopt;
    };
    if (name == "forward")
      for (const char *back : {"input_gradient", "weight_gradient"})
        if (auto found = next(back, actions[from].microbatch))
          return found;
    int seen = 0;
    for (size_t i = from + 1; i < actions.size(); ++i) {
      if (segmentOf(actions[i]).name == name && ++seen == 2)
        return i;
      if (concludes(segmentOf(actions[i]).segment->kind))
        return i;
    }
    return std::nullopt;
  }

  void addWaits() {
    waitedAt.resize(actions.size());
    for (size_t i = 0; i < actions.size(); ++i) {
      if (segmentOf(actions[i]).sends.empty())
        continue;
      auto at = waitAction(i);
      if (!at) { // nothing follows: an action that only waits
        append(finishSegment(), 0);
        waitedAt.resize(actions.size());
        at = actions.size() - 1;
      }
      waitedAt[i] = *at;
      for (const SentMessage &message : segmentOf(actions[i]).sends)
        actions[*at].waits.emplace_back(message.tag, static_cast<int32_t>(actions[i].microbatch));
    }
  }

  size_t finishSegment() {
    if (auto found = find("finish"))
      return *found;
    SegmentDraft &draft = builder.segments.emplace_back();
    draft.name = draft.segment->name = "finish";
    draft.segment->kind = plan::SegmentKind::Reduce;
    return builder.segments.size() - 1;
  }

  /// A microbatch holds the lowest frame that is free from its first action until its last action or wait.
  void assignFrames() {
    std::map<int64_t, size_t> ends;
    for (size_t i = 0; i < actions.size(); ++i)
      if (actions[i].perMicrobatch)
        ends[actions[i].microbatch] = std::max({ends[actions[i].microbatch], i, waitedAt[i]});
    std::map<int64_t, int64_t> frameOf;
    std::vector<size_t> busyUntil;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!actions[i].perMicrobatch)
        continue;
      auto [found, fresh] = frameOf.try_emplace(actions[i].microbatch, 0);
      if (fresh) {
        size_t frame = 0;
        while (frame < busyUntil.size() && busyUntil[frame] >= i)
          ++frame;
        if (frame == busyUntil.size())
          busyUntil.push_back(0);
        busyUntil[frame] = ends[actions[i].microbatch];
        found->second = static_cast<int64_t>(frame);
      }
      actions[i].frame = found->second;
    }
  }

  /// Actions with the same segment and frame among microbatches in the same state need the same memory: they share a
  /// window of time, so that a thousand microbatches cost no more than a few.
  void assignWindows() {
    std::map<std::vector<int64_t>, size_t> known;
    std::map<int64_t, std::vector<size_t>> ofMicrobatch; // actions, and waits of its messages
    for (size_t i = 0; i < actions.size(); ++i)
      if (actions[i].perMicrobatch) {
        ofMicrobatch[actions[i].microbatch].push_back(i);
        if (waitedAt[i])
          ofMicrobatch[actions[i].microbatch].push_back(waitedAt[i]);
      }
    std::map<int64_t, std::pair<int64_t, int64_t>> state; // microbatch -> (frame, events past)
    std::vector<std::vector<int64_t>> past(actions.size()), gone(actions.size() + 1);
    for (auto &[microbatch, events] : ofMicrobatch) {
      std::sort(events.begin(), events.end());
      for (size_t event : events)
        past[event].push_back(microbatch);
      gone[events.back() + 1].push_back(microbatch);
    }
    int64_t time = 0;
    for (size_t i = 0; i < actions.size(); ++i) {
      for (int64_t microbatch : gone[i])
        state.erase(microbatch);
      std::vector<std::array<int64_t, 2>> live;
      for (auto &[microbatch, entry] : state)
        live.push_back({entry.first, entry.second});
      std::sort(live.begin(), live.end());
      std::vector<int64_t> signature{static_cast<int64_t>(actions[i].segment), actions[i].frame,
                                     static_cast<int64_t>(actions[i].waits.size())};
      for (auto &[frame, events] : live)
        signature.insert(signature.end(), {frame, events});
      auto [found, fresh] = known.try_emplace(signature, windowBegin.size());
      if (fresh) {
        windowBegin.push_back(time);
        time += length(i);
      }
      window.push_back(found->second);
      for (int64_t microbatch : past[i]) {
        int64_t frame = actions[ofMicrobatch[microbatch].front()].frame;
        auto [entry, isNew] = state.try_emplace(microbatch, frame, 0);
        ++entry->second.second;
      }
    }
  }

  int64_t length(size_t action) const { return 1 + static_cast<int64_t>(segmentOf(actions[action]).touched.size()); }

  static uint64_t key(uint32_t slot, int64_t frame) { return uint64_t{slot} << 32 | static_cast<uint64_t>(frame); }

  void placeSlots() {
    std::vector<std::vector<Touch>> touched;
    for (const SegmentDraft &segment : builder.segments)
      touched.push_back(touches(segment));
    // Where each slot of each microbatch begins and ends to be used.
    std::unordered_map<uint64_t, std::pair<Moment, Moment>> ranges;
    auto extend = [&](uint32_t slot, int64_t microbatch, Moment from, Moment to) {
      auto [found, fresh] = ranges.try_emplace(key(slot, microbatch), from, to);
      found->second.first = std::min(found->second.first, from);
      found->second.second = std::max(found->second.second, to);
      if (fresh)
        order.push_back({slot, microbatch});
    };
    for (size_t i = 0; i < actions.size(); ++i) {
      const ActionDraft &action = actions[i];
      int64_t microbatch = action.perMicrobatch ? action.microbatch : 0;
      for (const Touch &touch : touched[action.segment])
        if (builder.slot(touch.slot).space == plan::Space::Placed)
          extend(touch.slot, microbatch, {i, 1 + touch.first}, {i, 1 + touch.last});
      for (const SentMessage &message : segmentOf(action).sends)
        extend(message.slot, microbatch, {waitedAt[i], 0}, {waitedAt[i], 0});
    }
    std::map<int64_t, int64_t> frames;
    for (const ActionDraft &action : actions)
      if (action.perMicrobatch)
        frames[action.microbatch] = action.frame;
    std::vector<Interval> intervals;
    for (auto [slot, microbatch] : order) {
      auto [found, fresh] = objects.try_emplace(key(slot, frames[microbatch]), intervals.size());
      if (fresh)
        intervals.push_back({builder.slot(slot).bytes, {}, -1});
      auto [from, to] = ranges.at(key(slot, microbatch));
      addPieces(intervals[found->second].live, from, to);
    }
    for (Interval &interval : intervals)
      mergePieces(interval.live);
    placement = place(intervals, alignment);
  }

  void addPieces(std::vector<Lifetime> &live, Moment from, Moment to) const {
    if (window[to.action] - window[from.action] == to.action - from.action) { // windows in a row
      live.push_back({windowBegin[window[from.action]] + from.offset, windowBegin[window[to.action]] + to.offset});
      return;
    }
    for (size_t i = from.action; i <= to.action; ++i)
      live.push_back({windowBegin[window[i]] + (i == from.action ? from.offset : 0),
                      windowBegin[window[i]] + (i == to.action ? to.offset : length(i) - 1)});
  }

  static void mergePieces(std::vector<Lifetime> &live) {
    std::sort(live.begin(), live.end(), [](const Lifetime &a, const Lifetime &b) { return a.first < b.first; });
    std::vector<Lifetime> merged;
    for (const Lifetime &piece : live)
      if (!merged.empty() && piece.first <= merged.back().last + 1)
        merged.back().last = std::max(merged.back().last, piece.last);
      else
        merged.push_back(piece);
    live = std::move(merged);
  }

  ProgramBuilder &builder;
  std::vector<size_t> waitedAt;                     // action that waits for an action's sends; 0: none
  std::vector<size_t> window;                       // per action
  std::vector<int64_t> windowBegin;                 // per window
  std::vector<std::pair<uint32_t, int64_t>> order;  // slot, microbatch: as first used
  std::unordered_map<uint64_t, size_t> objects;     // (slot, frame) -> interval
};

/// Persistent slots one after the other; the bytes they take.
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

  /// Inputs that these actions read: one place per slot and microbatch.
  void placeInputs(const Pass &pass) {
    for (const ActionDraft &action : pass.actions)
      for (uint32_t slot : builder.segments[action.segment].segment->slots)
        if (builder.slot(slot).space == plan::Space::Input &&
            inputs.try_emplace({slot, action.microbatch}, inputBytes).second)
          inputBytes += aligned(builder.slot(slot).bytes);
  }

  std::vector<std::unique_ptr<plan::ActionT>> actions(const Pass &pass) {
    std::vector<std::unique_ptr<plan::ActionT>> list;
    for (const ActionDraft &draft : pass.actions) {
      auto action = std::make_unique<plan::ActionT>();
      action->segment = static_cast<uint32_t>(draft.segment);
      action->microbatch = static_cast<int32_t>(draft.microbatch);
      action->layout = layout(pass, draft);
      action->wait_sends = draft.waits;
      list.push_back(std::move(action));
    }
    return list;
  }

  uint64_t inputBytes = 0;

private:
  uint32_t layout(const Pass &pass, const ActionDraft &draft) {
    std::vector<uint64_t> offsets;
    for (uint32_t slot : builder.segments[draft.segment].segment->slots)
      offsets.push_back(builder.slot(slot).space == plan::Space::Input ? inputs.at({slot, draft.microbatch})
                                                                       : persistentBytes + pass.offset(slot, draft));
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

} // namespace

void scheduleProgram(ProgramBuilder &builder, const std::vector<partitioner::ScheduleItem> &train,
                     const std::vector<partitioner::ScheduleItem> &eval) {
  Pass training(builder, train), evaluation(builder, eval);
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
  program.arena_bytes = persistent + std::max(training.placement.bytes, evaluation.placement.bytes);
  program.peak_bytes = program.arena_bytes + 2 * program.input_bytes;
  program.lower_bound_bytes =
      persistent + std::max(training.placement.lowerBound, evaluation.placement.lowerBound) + 2 * program.input_bytes;
}

} // namespace cleave::passes
