// Slots of one action may share addresses, because they are used one after the other: their bytes are those of the
// union of their ranges. A value that is kept during an action shares no address with it.
#include "partitioner/simulate/LiveBytes.h"

#include "partitioner/simulate/Memory.h"
#include "runtime/plan/check/Defects.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace cleave::partitioner {

using check::length;

namespace {

bool placed(const plan::Program &program, uint32_t slot) {
  return program.slots()->Get(slot)->space() == plan::Space::Placed;
}

uint64_t bytesOfSlot(const plan::Program &program, uint32_t slot) { return arenaBytes(*program.slots()->Get(slot)); }

/// Bytes of the union of the ranges of an action's slots.
uint64_t runningBytes(const plan::Program &program, const plan::Segment &segment, const plan::Layout &layout) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (uint32_t i = 0; i < std::min(length(segment.slots()), length(layout.offsets())); ++i)
    if (const uint32_t slot = segment.slots()->Get(i); placed(program, slot))
      ranges.emplace_back(layout.offsets()->Get(i), layout.offsets()->Get(i) + bytesOfSlot(program, slot));
  std::sort(ranges.begin(), ranges.end());
  uint64_t bytes = 0, reached = 0;
  for (const auto &[begin, end] : ranges) {
    bytes += end > std::max(begin, reached) ? end - std::max(begin, reached) : 0;
    reached = std::max(reached, end);
  }
  return bytes;
}

} // namespace

std::vector<LiveBytes> liveBytes(const plan::Program &program) {
  const uint32_t count = length(program.train());
  std::vector<LiveBytes> live(count);
  std::unordered_map<uint64_t, uint32_t> last; // by microbatch and slot
  const auto eachSlot = [&](uint32_t a, auto fn) {
    const plan::Action &action = *program.train()->Get(a);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    for (uint32_t i = 0; i < length(segment.slots()); ++i)
      if (const uint32_t slot = segment.slots()->Get(i); placed(program, slot))
        fn(uint64_t{static_cast<uint32_t>(action.microbatch())} << 32 | slot, bytesOfSlot(program, slot));
  };
  std::vector<int64_t> change(count + 1); // of `kept`
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> known;
  for (uint32_t a = 0; a < count; ++a) {
    const plan::Action &action = *program.train()->Get(a);
    const auto [found, added] = known.try_emplace({action.segment(), action.layout()});
    if (added)
      found->second =
          runningBytes(program, *program.segments()->Get(action.segment()), *program.layouts()->Get(action.layout()));
    live[a].running = found->second;
    eachSlot(a, [&](uint64_t value, uint64_t bytes) {
      const auto [before, first] = last.try_emplace(value, a);
      if (!first) { // kept by the actions between
        change[before->second + 1] += static_cast<int64_t>(bytes);
        change[a] -= static_cast<int64_t>(bytes);
        before->second = a;
      }
    });
  }
  int64_t kept = 0;
  for (uint32_t a = 0; a < count; ++a)
    live[a].kept = static_cast<uint64_t>(kept += change[a]);
  return live;
}

} // namespace cleave::partitioner
