// Placement of the slots of a list of actions: live ranges over the whole list, and one place per slot and frame. Value
// structs only, no plan or IR.
//
// Microbatches in flight at the same time are distinguished by frames 0, 1, ... All microbatches of a frame use the
// same places, so a thousand microbatches need no more layouts than a few. A slot from which a message is sent may
// outlive its microbatch and has separate frames. If there are very many slots and frames, a slot that only one
// microbatch uses at a time has one place for all of them.
#pragma once
#include "passes/place/Place.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

namespace cleave::passes {

/// The first and last step of a segment that access a slot.
struct Touch {
  uint32_t slot = 0;
  int64_t first = 0, last = 0;
};

/// A segment: its number of steps, and the slots they access (each once).
struct SegmentUse {
  int64_t steps = 0;
  std::vector<Touch> touches;
};

/// One execution of a segment. A slot accessed by several segments belongs to the microbatch; actions that are not per
/// microbatch share no slots.
struct TimedAction {
  size_t segment = 0;
  int64_t microbatch = 0;
  bool perMicrobatch = true;
};

/// `slot` as used by `action` must not change before action `until` begins.
struct Hold {
  size_t action = 0;
  uint32_t slot = 0;
  size_t until = 0;
};

class Timeline {
public:
  /// Places all slots. `bytes`: the size of every slot.
  Timeline(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
           const std::vector<Hold> &holds, const std::vector<uint64_t> &bytes);

  /// Offset of a slot that `action` accesses.
  uint64_t offset(uint32_t slot, size_t action) const;
  const Placement &placement() const { return placed; }

private:
  /// A time: an action, and within it 0 (before its first step) or 1 + step.
  struct Moment {
    size_t action = 0;
    int64_t step = 0;
    auto operator<=>(const Moment &) const = default;
  };
  struct Range {
    Moment from, to;
  };
  using Key = std::pair<uint32_t, int64_t>; // slot, and microbatch or frame

  int64_t microbatchOf(size_t action) const { return actions[action].perMicrobatch ? actions[action].microbatch : 0; }
  int64_t length(size_t action) const { return 1 + segments[actions[action].segment].steps; }
  int64_t frameOf(uint32_t slot, int64_t microbatch) const;
  int64_t slotsPerMicrobatch() const;
  void findRanges();
  void assignFrames();
  void assignOwnFrames();
  void shareFrames();
  void assignWindows();
  void placeSlots();
  void addPieces(std::vector<Lifetime> &live, const Range &range) const;

  const std::vector<TimedAction> &actions;
  const std::vector<SegmentUse> &segments;
  const std::vector<Hold> &holds;
  const std::vector<uint64_t> &bytes;
  std::map<int64_t, std::pair<size_t, size_t>> spans; // microbatch -> its first and last action
  std::map<Key, Range> ranges;                        // (slot, microbatch) -> its live range
  std::map<int64_t, int64_t> frames;                  // microbatch -> frame
  std::map<uint32_t, std::map<int64_t, int64_t>> own; // slot that outlives its microbatch -> microbatch -> frame
  std::set<uint32_t> shared;                          // slots with one place for all microbatches
  std::vector<size_t> window;                         // of every action
  std::vector<int64_t> windowBegin;
  std::map<Key, size_t> objects; // (slot, frame) -> interval
  Placement placed;
};

} // namespace cleave::passes
