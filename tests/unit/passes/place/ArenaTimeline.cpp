// Lifetimes over a schedule: live slots never overlap, pipelines reach the lower bound, microbatches share frames.
#include "passes/place/ArenaTimeline.h"

#include <catch2/catch.hpp>

#include <set>

using namespace cleave::passes;

namespace {

// Slots: 0 and 1 are temporaries of forward and backward; 2 is kept from forward to backward; backward sends 3.
enum { ForwardTemporary, BackwardTemporary, Kept, Sent };
const std::vector<uint64_t> bytes{4096, 8192, 16384, 1024};
const std::vector<SegmentUse> segments{{4, {{ForwardTemporary, 0, 2}, {Kept, 2, 3}}},
                                       {4, {{BackwardTemporary, 0, 3}, {Kept, 0, 2}, {Sent, 2, 3}}}};

struct Schedule {
  std::vector<TimedAction> actions;
  std::vector<Hold> holds;
};

/// 1F1B with `inFlight` microbatches at once; the wait for a sent gradient comes two microbatches later.
Schedule oneForwardOneBackward(int64_t microbatches, int64_t inFlight) {
  Schedule s;
  for (int64_t m = 0; m < microbatches + inFlight - 1; ++m) {
    if (m < microbatches)
      s.actions.push_back({0, m, true});
    if (m >= inFlight - 1)
      s.actions.push_back({1, m - inFlight + 1, true});
  }
  s.actions.push_back({0, 0, false}); // the end, where no placed slot is in use
  s.actions.back().segment = 2;
  std::vector<size_t> backward;
  for (size_t i = 0; i < s.actions.size(); ++i)
    if (s.actions[i].segment == 1)
      backward.push_back(i);
  for (size_t i = 0; i < backward.size(); ++i)
    s.holds.push_back({backward[i], Sent, i + 2 < backward.size() ? backward[i + 2] : s.actions.size() - 1});
  return s;
}

/// Follows the schedule with the offsets of `timeline`. Counts pairs of live values that overlap; returns 1,000,000 if
/// a value's offset changes while it is live.
int defects(const Schedule &s, const std::vector<SegmentUse> &uses, const ArenaTimeline &timeline) {
  struct Live {
    uint32_t slot;
    int64_t microbatch;
    uint64_t offset;
    size_t lastAction;
    int64_t lastStep;
  };
  std::vector<Live> all;
  std::vector<std::pair<size_t, int64_t>> begins;
  for (size_t i = 0; i < s.actions.size(); ++i)
    for (const Touch &touch : uses[s.actions[i].segment].touches) {
      bool found = false;
      for (size_t k = 0; k < all.size(); ++k)
        if (all[k].slot == touch.slot && all[k].microbatch == s.actions[i].microbatch) {
          if (all[k].offset != timeline.offset(touch.slot, i))
            return 1'000'000; // offset changed between segments
          all[k].lastAction = i, all[k].lastStep = 1 + touch.last;
          found = true;
        }
      if (!found) {
        all.push_back({touch.slot, s.actions[i].microbatch, timeline.offset(touch.slot, i), i, 1 + touch.last});
        begins.push_back({i, 1 + touch.first});
      }
    }
  for (const Hold &hold : s.holds)
    for (Live &live : all)
      if (live.slot == hold.slot && live.microbatch == s.actions[hold.action].microbatch)
        live.lastAction = hold.until, live.lastStep = 0;
  int found = 0;
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      bool together = begins[a] <= std::pair(all[b].lastAction, all[b].lastStep) &&
                      begins[b] <= std::pair(all[a].lastAction, all[a].lastStep);
      bool overlap =
          all[a].offset < all[b].offset + bytes[all[b].slot] && all[b].offset < all[a].offset + bytes[all[a].slot];
      found += together && overlap;
    }
  return found;
}

} // namespace

TEST_CASE("pipelines of every depth are placed without overlap, near the bound", "[export]") {
  std::vector<SegmentUse> uses = segments;
  uses.push_back({1, {}});
  for (int64_t inFlight = 1; inFlight <= 6; ++inFlight)
    for (int64_t microbatches : {1, 2, 3, 7, 24}) {
      Schedule s = oneForwardOneBackward(microbatches, std::min(inFlight, microbatches));
      ArenaTimeline timeline(s.actions, uses, s.holds, bytes);
      INFO(microbatches << " microbatches, " << inFlight << " in flight");
      CHECK(defects(s, uses, timeline) == 0);
      CHECK(timeline.placement().bytes <= timeline.placement().lowerBound + 2 * bytes[Sent]);
    }
}

TEST_CASE("a place that is reserved before its microbatch begins is used by nothing else", "[export]") {
  // Forward receives what backward still reads: its place is reserved from the forward pass before.
  std::vector<SegmentUse> uses = segments;
  uses.push_back({1, {}});
  for (int64_t inFlight = 1; inFlight <= 6; ++inFlight)
    for (int64_t microbatches : {2, 3, 7, 24}) {
      Schedule s = oneForwardOneBackward(microbatches, std::min(inFlight, microbatches));
      s.holds.clear();
      for (size_t i = 0, before = 0; i < s.actions.size(); ++i)
        if (s.actions[i].segment == 0) {
          if (before < i)
            s.holds.push_back({i, Kept, before});
          before = i;
        }
      const ArenaTimeline timeline(s.actions, uses, s.holds, bytes);
      INFO(microbatches << " microbatches, " << inFlight << " in flight");
      for (const Hold &hold : s.holds) {
        const uint64_t from = timeline.offset(Kept, hold.action), to = from + bytes[Kept];
        const auto overlaps = [&](uint32_t slot, size_t action) {
          const uint64_t at = timeline.offset(slot, action);
          return at < to && from < at + bytes[slot];
        };
        for (size_t i = hold.until; i < hold.action; ++i)
          for (const Touch &touch : uses[s.actions[i].segment].touches)
            CHECK_FALSE(overlaps(touch.slot, i));
      }
    }
}

TEST_CASE("a place that is reserved from a step on may have another use before it", "[export]") {
  // The end of the iteration writes Sum, which one thing makes ready in step 1 of the backward pass.
  enum { Early, Late, Sum };
  const std::vector<uint64_t> sizes{4096, 4096, 4096};
  const std::vector<SegmentUse> uses{{4, {{Early, 0, 1}, {Late, 2, 3}}}, {1, {{Sum, 0, 0}}}};
  const std::vector<TimedAction> actions{{0, 0, true}, {1, 0, false}};
  const auto placed = [&](std::vector<Hold> holds) { return ArenaTimeline(actions, uses, holds, sizes); };
  CHECK(placed({}).placement().bytes == 4096);
  const ArenaTimeline reserved = placed({{1, Sum, 0, 1}});
  CHECK(reserved.placement().bytes == 8192);
  CHECK(reserved.offset(Sum, 1) != reserved.offset(Late, 0));
  CHECK(placed({{1, Sum, 0, 3}}).placement().bytes == 8192);
  CHECK(placed({{1, Sum, 0}}).placement().bytes == 8192);
}

TEST_CASE("places repeat: their number does not grow with microbatches", "[export]") {
  std::vector<SegmentUse> uses = segments;
  uses.push_back({1, {}});
  auto places = [&](int64_t microbatches) {
    Schedule s = oneForwardOneBackward(microbatches, 3);
    ArenaTimeline timeline(s.actions, uses, s.holds, bytes);
    std::set<std::pair<size_t, std::vector<uint64_t>>> layouts;
    for (size_t i = 0; i < s.actions.size(); ++i) {
      std::vector<uint64_t> offsets;
      for (const Touch &touch : uses[s.actions[i].segment].touches)
        offsets.push_back(timeline.offset(touch.slot, i));
      layouts.insert({s.actions[i].segment, offsets});
    }
    CHECK(timeline.placement().bytes == timeline.placement().lowerBound);
    return layouts.size();
  };
  CHECK(places(1000) == places(100)); // the last round begins with the same frame
}

TEST_CASE("all forwards before all backwards", "[export]") {
  std::vector<SegmentUse> uses = segments;
  Schedule s;
  for (int64_t m = 0; m < 16; ++m)
    s.actions.push_back({0, m, true});
  for (int64_t m = 15; m >= 0; --m)
    s.actions.push_back({1, m, true});
  ArenaTimeline timeline(s.actions, uses, s.holds, bytes);
  CHECK(defects(s, uses, timeline) == 0);
  CHECK(timeline.placement().bytes == timeline.placement().lowerBound);
}
