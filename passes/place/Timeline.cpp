// Live ranges of slots, frames of microbatches, windows of equal actions, placement.
#include "passes/place/Timeline.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace cleave::passes {

namespace {

constexpr int64_t mostObjects = 4'000; ///< slots times frames, up to which every frame has a place for every slot

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

void mergePieces(std::vector<Lifetime> &live) {
  std::sort(live.begin(), live.end(), [](const Lifetime &a, const Lifetime &b) { return a.first < b.first; });
  std::vector<Lifetime> merged;
  for (const Lifetime &piece : live)
    if (!merged.empty() && piece.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, piece.last);
    else
      merged.push_back(piece);
  live = std::move(merged);
}

} // namespace

Timeline::Timeline(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
                   const std::vector<Hold> &holds, const std::vector<uint64_t> &bytes)
    : actions(actions), segments(segments), holds(holds), bytes(bytes) {
  findRanges();
  assignOwnFrames();
  assignFrames();
  shareFrames();
  assignWindows();
  placeSlots();
}

int64_t Timeline::frameOf(uint32_t slot, int64_t microbatch) const {
  if (auto found = own.find(slot); found != own.end())
    return found->second.at(microbatch);
  if (shared.count(slot))
    return 0;
  auto frame = frames.find(microbatch);
  return frame == frames.end() ? 0 : frame->second;
}

uint64_t Timeline::offset(uint32_t slot, size_t action) const {
  return placed.offsets[objects.at({slot, frameOf(slot, microbatchOf(action))})];
}

void Timeline::findRanges() {
  auto extend = [&](uint32_t slot, int64_t microbatch, Moment from, Moment to) {
    auto [found, fresh] = ranges.try_emplace({slot, microbatch}, Range{from, to});
    found->second.from = std::min(found->second.from, from);
    found->second.to = std::max(found->second.to, to);
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    for (const Touch &touch : segments[actions[i].segment].touches)
      extend(touch.slot, microbatchOf(i), {i, 1 + touch.first}, {i, 1 + touch.last});
    if (actions[i].perMicrobatch) {
      auto [found, fresh] = spans.try_emplace(actions[i].microbatch, i, i);
      found->second.second = i;
    }
  }
  for (const Hold &hold : holds)
    extend(hold.slot, microbatchOf(hold.action), {hold.until, 0}, {hold.until, 0});
}

/// Slots with a place in each frame.
int64_t Timeline::slotsPerMicrobatch() const {
  int64_t count = 0;
  uint32_t last = UINT32_MAX;
  for (const auto &[key, range] : ranges) {
    count += key.first != last && !own.count(key.first);
    last = key.first;
  }
  return count;
}

/// A microbatch holds a frame from its first action to its last. Frames are assigned round-robin. Their number is the
/// number of microbatches in flight, or a multiple that matches the cycle of held slots, so that a frame's conflicts
/// are the same in every round.
void Timeline::assignFrames() {
  std::vector<std::pair<size_t, int64_t>> order;
  for (auto &[microbatch, span] : spans)
    order.push_back({span.first, microbatch});
  std::sort(order.begin(), order.end());
  std::vector<size_t> busy;
  for (auto [begin, microbatch] : order)
    frames[microbatch] = takeFrame(busy, begin, spans[microbatch].second + 1);
  int64_t inFlight = static_cast<int64_t>(busy.size()), around = inFlight;
  const int64_t slots = slotsPerMicrobatch();
  for (auto &[slot, ownFrames] : own)
    for (auto [microbatch, frame] : ownFrames)
      if (int64_t common = std::lcm(around, frame + 1); common <= 4 * inFlight && common * slots <= mostObjects)
        around = common;
  busy.assign(static_cast<size_t>(around), 0);
  std::map<int64_t, int64_t> round;
  for (size_t i = 0; i < order.size(); ++i) {
    auto [begin, microbatch] = order[i];
    size_t frame = i % busy.size();
    if (busy[frame] > begin)
      return; // microbatches do not end in the order in which they begin: keeps the first assignment
    busy[frame] = spans[microbatch].second + 1;
    round[microbatch] = static_cast<int64_t>(frame);
  }
  frames = round;
}

void Timeline::shareFrames() {
  int64_t count = 0;
  for (const auto &[microbatch, frame] : frames)
    count = std::max(count, frame + 1);
  if (count * slotsPerMicrobatch() <= mostObjects)
    return;
  for (auto at = ranges.begin(); at != ranges.end();) {
    const uint32_t slot = at->first.first;
    std::vector<Range> live;
    for (; at != ranges.end() && at->first.first == slot; ++at)
      live.push_back(at->second);
    std::sort(live.begin(), live.end(), [](const Range &a, const Range &b) { return a.from < b.from; });
    const auto meet = [](const Range &a, const Range &b) { return b.from <= a.to; };
    if (!own.count(slot) && std::adjacent_find(live.begin(), live.end(), meet) == live.end())
      shared.insert(slot);
  }
}

/// Frames of slots that are held beyond their microbatch's last action. They become free when the awaited action
/// begins.
void Timeline::assignOwnFrames() {
  for (const Hold &hold : holds)
    if (actions[hold.action].perMicrobatch && hold.until > spans.at(actions[hold.action].microbatch).second)
      own.try_emplace(hold.slot);
  for (auto &[slot, ownFrames] : own) {
    std::vector<std::pair<Range, int64_t>> order;
    for (auto at = ranges.lower_bound({slot, INT64_MIN}); at != ranges.end() && at->first.first == slot; ++at)
      order.push_back({at->second, at->first.second});
    std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first.from < b.first.from; });
    std::vector<size_t> busy;
    for (auto &[range, microbatch] : order)
      ownFrames[microbatch] = takeFrame(busy, range.from.action, range.to.action + (range.to.step > 0));
  }
}

/// Actions of the same segment and frame, with all microbatches in the same state, use the same memory at the same
/// steps, so they share a window of time. The signature of an action determines what is live in it.
void Timeline::assignWindows() {
  std::vector<std::vector<std::vector<int64_t>>> held(actions.size()); // held slots live at each action
  for (auto &[slot, ownFrames] : own)
    for (auto [microbatch, frame] : ownFrames) {
      const Range &range = ranges.at({slot, microbatch});
      for (size_t i = range.from.action; i <= range.to.action; ++i)
        held[i].push_back({-1 - int64_t{slot}, frame, (i == range.from.action) + 2 * (i == range.to.action)});
    }
  std::map<std::vector<std::vector<int64_t>>, size_t> known;
  std::map<int64_t, int64_t> done; // microbatch -> actions done; unfinished ones only
  int64_t time = 0;
  for (size_t i = 0; i < actions.size(); ++i) {
    std::vector<std::vector<int64_t>> signature = held[i];
    for (auto [microbatch, count] : done)
      signature.push_back({frames[microbatch], count});
    std::sort(signature.begin(), signature.end());
    signature.push_back(
        {static_cast<int64_t>(actions[i].segment), frameOf(UINT32_MAX, microbatchOf(i)), actions[i].perMicrobatch});
    auto [found, fresh] = known.try_emplace(std::move(signature), windowBegin.size());
    if (fresh) {
      windowBegin.push_back(time);
      time += length(i);
    }
    window.push_back(found->second);
    if (!actions[i].perMicrobatch)
      continue;
    ++done[actions[i].microbatch];
    if (spans[actions[i].microbatch].second == i)
      done.erase(actions[i].microbatch);
  }
}

void Timeline::addPieces(std::vector<Lifetime> &live, const Range &range) const {
  size_t from = range.from.action, to = range.to.action;
  if (window[to] - window[from] == to - from) { // consecutive windows
    live.push_back({windowBegin[window[from]] + range.from.step, windowBegin[window[to]] + range.to.step});
    return;
  }
  for (size_t i = from; i <= to; ++i)
    live.push_back({windowBegin[window[i]] + (i == from ? range.from.step : 0),
                    windowBegin[window[i]] + (i == to ? range.to.step : length(i) - 1)});
}

void Timeline::placeSlots() {
  std::vector<std::pair<Range, Key>> order; // in time order, so that equal problems have equal results
  for (auto &[key, range] : ranges)
    order.push_back({range, key});
  std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return std::tie(a.first.from, a.second) < std::tie(b.first.from, b.second);
  });
  std::vector<Interval> intervals;
  for (auto &[range, key] : order) {
    auto [found, fresh] = objects.try_emplace({key.first, frameOf(key.first, key.second)}, intervals.size());
    if (fresh)
      intervals.push_back({bytes[key.first], {}, -1});
    addPieces(intervals[found->second].live, range);
  }
  for (Interval &interval : intervals)
    mergePieces(interval.live);
  placed = place(intervals);
}

} // namespace cleave::passes
