// Placement of the slots of a list of actions: live ranges over the whole list, and one place per slot and frame. Value
// structs only, no plan or IR.
//
// Microbatches in flight at the same time are distinguished by frames 0, 1, ... Actions that find all frames in the
// same state use the same places, so a thousand microbatches need no more layouts than a few. Short lists whose
// placement is far above the lower bound are also placed with every action apart. A slot from which a message is sent
// may outlive its microbatch and has separate frames. If there are very many slots and frames, a slot that only one
// microbatch uses at a time has one place for all of them.
#pragma once
#include "passes/place/Place.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
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

/// `slot` as used by `action` keeps its place as far as the beginning of action `until`: a later one, before which its
/// value must not change, or an earlier one, from which on something may already be written there. Of an earlier one,
/// from the end of `step` on, if that is not -1.
struct Hold {
  size_t action = 0;
  uint32_t slot = 0;
  size_t until = 0;
  int64_t step = -1;
};

/// The frames in which slots are placed.
struct SlotFrames {
  std::map<int64_t, int64_t> ofMicrobatch;            ///< microbatch -> frame
  std::map<uint32_t, std::map<int64_t, int64_t>> own; ///< slot that outlives its microbatch -> microbatch -> frame
  std::set<uint32_t> shared;                          ///< slots with one place for all microbatches

  int64_t frameOf(int64_t microbatch) const;
  int64_t frameOf(uint32_t slot, int64_t microbatch) const;
};

class ArenaTimeline {
public:
  /// Places all slots. `bytes`: the size of every slot. `tight`: see place().
  ArenaTimeline(const std::vector<TimedAction> &actions, const std::vector<SegmentUse> &segments,
                const std::vector<Hold> &holds, const std::vector<uint64_t> &bytes, bool tight = true);

  /// Offset of a slot that `action` accesses.
  uint64_t offset(uint32_t slot, size_t action) const;
  const Placement &placement() const { return placed; }

private:
  std::vector<int64_t> microbatches; // of every action
  std::vector<size_t> actionWindows;
  SlotFrames frames;
  std::map<std::tuple<uint32_t, int64_t, size_t>, size_t> objects; // slot, frame, lowest window -> interval
  Placement placed;
};

} // namespace cleave::passes
