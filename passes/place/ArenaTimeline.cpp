// Live ranges of slots, frames of microbatches, windows of equal actions, placement.
#include "passes/place/ArenaTimeline.h"

#include <algorithm>
#include <compare>
#include <numeric>
#include <optional>
#include <tuple>

namespace cleave::passes {

namespace {

/// A time: an action, and within it 0 (before its first step) or 1 + step.
struct Moment {
  size_t action = 0;
  int64_t step = 0;
  auto operator<=>(const Moment &) const = default;
};

struct LiveRange {
  Moment from, to;
  size_t firstTouch = SIZE_MAX, lastTouch = 0; // actions; in others the slot is only held
};

using SlotKey = std::pair<uint32_t, int64_t>;               // slot, and microbatch or frame
using LiveRanges = std::map<SlotKey, LiveRange>;            // by slot and microbatch
using Spans = std::map<int64_t, std::pair<size_t, size_t>>; // microbatch -> its first and last action
using Frames = std::map<int64_t, int64_t>;                  // microbatch -> frame

constexpr int64_t mostObjects = 4'000;  ///< up to which slots have a place in every frame, and in every round
constexpr size_t mostActionsApart = 64; ///< up to which actions may have layouts of their own

/// The lowest frame that is free at `begin`; marks it as busy until `end`. `busy`: end of each frame's use, exclusive.
int64_t takeFrame(std::vector<size_t> &busy, size_t begin, size_t end) {
  size_t frame = 0;
  while (frame < busy.size() && busy[frame] > begin)
    ++frame;
  if (frame == busy.size())
    busy.push_back(0);
  busy[frame] = end;
  return static_cast<int64_t>(frame);
}

int64_t microbatchOf(const TimedAction &action) { return action.perMicrobatch ? action.microbatch : 0; }

Spans spansOf(const std::vector<TimedAction> &actions) {
  Spans spans;
  for (size_t i = 0; i < actions.size(); ++i)
    if (actions[i].perMicrobatch)
      spans.try_emplace(actions[i].microbatch, i, i).first->second.second = i;
  return spans;
}

LiveRanges rangesOf(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
                    const std::vector<Hold> &holds) {
  LiveRanges ranges;
  auto extend = [&](uint32_t slot, const TimedAction &action, Moment from, Moment to) -> LiveRange & {
    LiveRange &range = ranges.try_emplace({slot, microbatchOf(action)}, LiveRange{from, to}).first->second;
    range.from = std::min(range.from, from);
    range.to = std::max(range.to, to);
    return range;
  };
  for (size_t i = 0; i < actions.size(); ++i)
    for (const Touch &touch : segments[actions[i].segment].touches) {
      LiveRange &range = extend(touch.slot, actions[i], {i, 1 + touch.first}, {i, 1 + touch.last});
      range.firstTouch = std::min(range.firstTouch, i);
      range.lastTouch = i;
    }
  for (const Hold &hold : holds)
    extend(hold.slot, actions[hold.action], {hold.until, 1 + hold.step}, {hold.until, 1 + hold.step});
  return ranges;
}

int64_t numberOf(const Frames &frames) {
  int64_t count = 0;
  for (const auto &[microbatch, frame] : frames)
    count = std::max(count, frame + 1);
  return count;
}

/// The live ranges of a slot in time order, with their microbatches.
std::vector<std::pair<LiveRange, int64_t>> rangesOfSlot(const LiveRanges &ranges, uint32_t slot) {
  std::vector<std::pair<LiveRange, int64_t>> order;
  for (auto at = ranges.lower_bound({slot, INT64_MIN}); at != ranges.end() && at->first.first == slot; ++at)
    order.push_back({at->second, at->first.second});
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first.from < b.first.from; });
  return order;
}

/// The first action that begins after a range.
size_t endOf(const LiveRange &range) { return range.to.action + (range.to.step > 0); }

/// Every use of a slot gets the lowest frame that is free.
Frames lowestFrames(uint32_t slot, const LiveRanges &ranges) {
  Frames frames;
  std::vector<size_t> busy;
  for (const auto &[range, microbatch] : rangesOfSlot(ranges, slot))
    frames[microbatch] = takeFrame(busy, range.from.action, endOf(range));
  return frames;
}

/// Frames of slots that are held beyond their microbatch's last action. They become free when the awaited action
/// begins.
std::map<uint32_t, Frames> ownFrames(const std::vector<TimedAction> &actions, const std::vector<Hold> &holds,
                                     const Spans &spans, const LiveRanges &ranges) {
  std::map<uint32_t, Frames> own;
  for (const Hold &hold : holds)
    if (actions[hold.action].perMicrobatch && hold.until > spans.at(actions[hold.action].microbatch).second &&
        !own.count(hold.slot))
      own.emplace(hold.slot, lowestFrames(hold.slot, ranges));
  return own;
}

/// Two frames of a slot for each frame of the microbatches, used in turn: its place is reserved while the microbatch
/// before still uses the other one. Nothing if that is not enough.
std::optional<Frames> alternatingFrames(uint32_t slot, const Frames &ofMicrobatch, const LiveRanges &ranges) {
  Frames frames;
  std::map<int64_t, int64_t> uses;
  std::map<int64_t, size_t> busy;
  const int64_t count = numberOf(ofMicrobatch);
  for (const auto &[range, microbatch] : rangesOfSlot(ranges, slot)) {
    const int64_t frame = ofMicrobatch.at(microbatch), own = frame + count * (uses[frame]++ % 2);
    if (busy[own] > range.from.action)
      return std::nullopt;
    busy[own] = endOf(range);
    frames[microbatch] = own;
  }
  return frames;
}

/// Adds frames of slots that are reserved before their microbatch's first action.
void addReserved(SlotFrames &frames, const std::vector<TimedAction> &actions, const std::vector<Hold> &holds,
                 const Spans &spans, const LiveRanges &ranges) {
  for (const Hold &hold : holds) {
    if (!actions[hold.action].perMicrobatch || hold.until >= spans.at(actions[hold.action].microbatch).first ||
        frames.own.count(hold.slot))
      continue;
    auto alternating = alternatingFrames(hold.slot, frames.ofMicrobatch, ranges);
    frames.own.emplace(hold.slot, alternating ? std::move(*alternating) : lowestFrames(hold.slot, ranges));
  }
}

/// Slots with a place in each frame.
int64_t slotsPerMicrobatch(const LiveRanges &ranges, const std::map<uint32_t, Frames> &own) {
  int64_t count = 0;
  uint32_t last = UINT32_MAX;
  for (const auto &[key, range] : ranges) {
    count += key.first != last && !own.count(key.first);
    last = key.first;
  }
  return count;
}

/// The microbatches in the order in which they begin.
std::vector<int64_t> orderOf(const Spans &spans) {
  std::vector<std::pair<size_t, int64_t>> begins;
  for (const auto &[microbatch, span] : spans)
    begins.push_back({span.first, microbatch});
  std::sort(begins.begin(), begins.end());
  std::vector<int64_t> order;
  for (auto [begin, microbatch] : begins)
    order.push_back(microbatch);
  return order;
}

/// Every microbatch gets the lowest frame that is free.
Frames lowestFrames(const Spans &spans, const std::vector<int64_t> &order) {
  Frames frames;
  std::vector<size_t> busy;
  for (int64_t microbatch : order) {
    const auto [first, last] = spans.at(microbatch);
    frames[microbatch] = takeFrame(busy, first, last + 1);
  }
  return frames;
}

/// A number of frames that matches the cycle of held slots: `inFlight` or a multiple.
int64_t matchingFrames(int64_t inFlight, const std::map<uint32_t, Frames> &own, int64_t slots) {
  int64_t around = inFlight;
  for (const auto &[slot, frames] : own)
    for (auto [microbatch, frame] : frames)
      if (int64_t common = std::lcm(around, frame + 1); common <= 4 * inFlight && common * slots <= mostObjects)
        around = common;
  return around;
}

/// The microbatches take `count` frames in turn; nullopt if one is not free then, because microbatches do not end in
/// the order in which they begin.
std::optional<Frames> roundRobin(const Spans &spans, const std::vector<int64_t> &order, int64_t count) {
  Frames frames;
  std::vector<size_t> busy(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [first, last] = spans.at(order[i]);
    const size_t frame = i % busy.size();
    if (busy[frame] > first)
      return std::nullopt;
    busy[frame] = last + 1;
    frames[order[i]] = static_cast<int64_t>(frame);
  }
  return frames;
}

/// A microbatch holds a frame from its first action to its last. Frames are assigned round-robin. Their number is the
/// number of microbatches in flight, or a multiple that matches the cycle of held slots, so that a frame's conflicts
/// are the same in every round.
Frames microbatchFrames(const Spans &spans, const std::map<uint32_t, Frames> &own, int64_t slots) {
  const std::vector<int64_t> order = orderOf(spans);
  const Frames lowest = lowestFrames(spans, order);
  return roundRobin(spans, order, matchingFrames(numberOf(lowest), own, slots)).value_or(lowest);
}

/// If there are too many slots and frames: the slots that only one microbatch uses at a time.
std::set<uint32_t> sharedSlots(const LiveRanges &ranges, const SlotFrames &frames, int64_t slots) {
  std::set<uint32_t> shared;
  if (numberOf(frames.ofMicrobatch) * slots <= mostObjects)
    return shared;
  const auto meet = [](const auto &a, const auto &b) { return b.first.from <= a.first.to; };
  for (auto at = ranges.begin(); at != ranges.end(); at = ranges.upper_bound({at->first.first, INT64_MAX})) {
    const uint32_t slot = at->first.first;
    const auto live = rangesOfSlot(ranges, slot);
    if (!frames.own.count(slot) && std::adjacent_find(live.begin(), live.end(), meet) == live.end())
      shared.insert(slot);
  }
  return shared;
}

SlotFrames framesOf(const std::vector<TimedAction> &actions, const std::vector<Hold> &holds, const Spans &spans,
                    const LiveRanges &ranges) {
  SlotFrames frames;
  frames.own = ownFrames(actions, holds, spans, ranges);
  const int64_t slots = slotsPerMicrobatch(ranges, frames.own);
  frames.ofMicrobatch = microbatchFrames(spans, frames.own, slots);
  addReserved(frames, actions, holds, spans, ranges);
  frames.shared = sharedSlots(ranges, frames, slots);
  return frames;
}

/// What is live in an action, as sorted lists of numbers.
using Signature = std::vector<std::vector<int64_t>>;

/// The slots that are live in each action beside those that the actions before it determine: those that are held, and
/// those whose place is reserved.
std::vector<Signature> heldSlots(const std::vector<TimedAction> &actions, const std::vector<Hold> &holds,
                                 const SlotFrames &slotFrames, const LiveRanges &ranges) {
  std::vector<Signature> held(actions.size());
  for (const Hold &hold : holds)
    if (!slotFrames.own.count(hold.slot))
      for (size_t i = hold.until; i < hold.action; ++i)
        held[i].push_back({-1 - int64_t{hold.slot}, slotFrames.frameOf(hold.slot, microbatchOf(actions[hold.action]))});
  for (const auto &[slot, frames] : slotFrames.own)
    for (auto [microbatch, frame] : frames) {
      const LiveRange &range = ranges.at({slot, microbatch});
      for (size_t i = range.from.action; i <= range.to.action; ++i)
        held[i].push_back({-1 - int64_t{slot}, frame, (i == range.from.action) + 2 * (i == range.to.action)});
    }
  return held;
}

/// Intervals of time, each for the actions that use the same memory at the same steps.
struct Windows {
  std::vector<size_t> ofAction;
  std::vector<Lifetime> times;

  const Lifetime &operator[](size_t action) const { return times[ofAction[action]]; }
};

/// Actions of the same segment and frame, with all microbatches in the same state, use the same memory at the same
/// steps, so they share a window of time. The signature of an action determines what is live in it. `apart`: every
/// action has its own window.
Windows windowsOf(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
                  const std::vector<Hold> &holds, const Spans &spans, const LiveRanges &ranges,
                  const SlotFrames &frames, bool apart) {
  const std::vector<Signature> held = heldSlots(actions, holds, frames, ranges);
  Windows windows;
  std::map<Signature, size_t> known;
  std::map<int64_t, int64_t> done; // microbatch -> actions done; unfinished ones only
  int64_t time = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    const TimedAction &action = actions[i];
    Signature signature = held[i];
    for (auto [microbatch, count] : done)
      signature.push_back({frames.frameOf(microbatch), count});
    std::sort(signature.begin(), signature.end());
    signature.push_back(
        {static_cast<int64_t>(action.segment), frames.frameOf(microbatchOf(action)), action.perMicrobatch});
    if (apart)
      signature.push_back({static_cast<int64_t>(i)});
    auto [found, fresh] = known.try_emplace(std::move(signature), windows.times.size());
    if (fresh) {
      const int64_t last = time + segments[action.segment].steps; // a moment before the first step, and the steps
      windows.times.push_back({time, last});
      time = last + 1;
    }
    windows.ofAction.push_back(found->second);
    if (!action.perMicrobatch)
      continue;
    ++done[action.microbatch];
    if (spans.at(action.microbatch).second == i)
      done.erase(action.microbatch);
  }
  return windows;
}

/// Adds the times of a live range.
void addPieces(std::vector<Lifetime> &live, const LiveRange &range, const Windows &windows) {
  const Moment from = range.from, to = range.to;
  if (windows.ofAction[to.action] - windows.ofAction[from.action] == to.action - from.action) { // consecutive windows
    live.push_back({windows[from.action].first + from.step, windows[to.action].first + to.step});
    return;
  }
  for (size_t i = from.action; i <= to.action; ++i)
    live.push_back({windows[i].first + (i == from.action ? from.step : 0),
                    i == to.action ? windows[i].first + to.step : windows[i].last});
}

/// Joins pieces between which fewer than `gap` times lie.
void mergePieces(std::vector<Lifetime> &live, int64_t gap) {
  std::sort(live.begin(), live.end(), [](const Lifetime &a, const Lifetime &b) { return a.first < b.first; });
  std::vector<Lifetime> merged;
  for (const Lifetime &piece : live)
    if (!merged.empty() && piece.first <= merged.back().last + gap)
      merged.back().last = std::max(merged.back().last, piece.last);
    else
      merged.push_back(piece);
  live = std::move(merged);
}

using ObjectKey = std::tuple<uint32_t, int64_t, size_t>; // slot, frame, lowest window
using Objects = std::map<ObjectKey, size_t>;

/// Splits the uses of a slot in a frame into objects that share no window, so that each may have a place of its own.
/// The keys of the result are the slot, the frame, and the lowest window of each object.
Objects objectsOf(const LiveRanges &ranges, const SlotFrames &frames, const Windows &windows, bool apart) {
  std::map<std::pair<uint32_t, int64_t>, std::vector<Lifetime>> uses; // the lowest and highest window of each use
  for (const auto &[key, range] : ranges) {
    // Where actions share windows, uses that are held in the same one would take memory twice.
    const auto first =
        windows.ofAction.begin() + static_cast<std::ptrdiff_t>(apart ? range.firstTouch : range.from.action);
    const auto last = windows.ofAction.begin() + static_cast<std::ptrdiff_t>(apart ? range.lastTouch : range.to.action);
    const auto [low, high] = std::minmax_element(first, last + 1);
    uses[{key.first, frames.frameOf(key.first, key.second)}].push_back(
        {static_cast<int64_t>(*low), static_cast<int64_t>(*high)});
  }
  size_t count = 0;
  for (auto &[key, pieces] : uses) {
    mergePieces(pieces, 0);
    count += pieces.size();
  }
  Objects objects;
  for (const auto &[key, pieces] : uses)
    for (const Lifetime &piece : pieces)
      objects[{key.first, key.second, count > mostObjects ? 0 : static_cast<size_t>(piece.first)}] = SIZE_MAX;
  return objects;
}

/// The object with the highest lowest window up to that of the key.
auto &objectAt(auto &objects, const ObjectKey &key) { return std::prev(objects.upper_bound(key))->second; }

/// The live ranges in time order, so that equal problems have equal results.
std::vector<std::pair<LiveRange, SlotKey>> inTimeOrder(const LiveRanges &ranges) {
  std::vector<std::pair<LiveRange, SlotKey>> order;
  for (const auto &[key, range] : ranges)
    order.push_back({range, key});
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return std::tie(a.first.from, a.second) < std::tie(b.first.from, b.second);
  });
  return order;
}

/// The buffers of all objects, which get their numbers.
std::vector<Interval> intervalsOf(Objects &objects, const LiveRanges &ranges, const SlotFrames &frames,
                                  const Windows &windows, const std::vector<uint64_t> &bytes) {
  std::vector<Interval> intervals;
  for (const auto &[range, key] : inTimeOrder(ranges)) {
    const auto [slot, microbatch] = key;
    size_t &object = objectAt(objects, {slot, frames.frameOf(slot, microbatch), windows.ofAction[range.firstTouch]});
    if (object == SIZE_MAX) {
      object = intervals.size();
      intervals.push_back({bytes[slot], {}});
    }
    addPieces(intervals[object].live, range, windows);
  }
  for (Interval &interval : intervals)
    mergePieces(interval.live, 1);
  return intervals;
}

} // namespace

int64_t SlotFrames::frameOf(int64_t microbatch) const {
  auto frame = ofMicrobatch.find(microbatch);
  return frame == ofMicrobatch.end() ? 0 : frame->second;
}

int64_t SlotFrames::frameOf(uint32_t slot, int64_t microbatch) const {
  if (auto found = own.find(slot); found != own.end())
    return found->second.at(microbatch);
  return shared.count(slot) ? 0 : frameOf(microbatch);
}

ArenaTimeline::ArenaTimeline(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
                             const std::vector<Hold> &holds, const std::vector<uint64_t> &bytes, bool tight) {
  for (const TimedAction &action : actions)
    microbatches.push_back(microbatchOf(action));
  const Spans spans = spansOf(actions);
  const LiveRanges ranges = rangesOf(actions, segments, holds);
  frames = framesOf(actions, holds, spans, ranges);
  for (bool apart : {false, true}) {
    const Windows windows = windowsOf(actions, segments, holds, spans, ranges, frames, apart);
    Objects found = objectsOf(ranges, frames, windows, apart);
    const Placement placement = place(intervalsOf(found, ranges, frames, windows, bytes), 64, tight);
    if (!apart || placement.bytes < placed.bytes)
      placed = placement, objects = std::move(found), actionWindows = windows.ofAction;
    if (!tight || actions.size() > mostActionsApart || placed.bytes <= placed.lowerBound + placed.lowerBound / 50)
      return;
  }
}

uint64_t ArenaTimeline::offset(uint32_t slot, size_t action) const {
  return placed.offsets[objectAt(objects, {slot, frames.frameOf(slot, microbatches[action]), actionWindows[action]})];
}

} // namespace cleave::passes
