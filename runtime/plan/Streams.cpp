// Vector clocks of streams, and the last accesses of every byte of the arena.
#include "runtime/plan/Streams.h"

#include "runtime/plan/check/Defects.h"
#include "runtime/plan/steps/Communication.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace cleave {

namespace {

using check::Access;
using check::length;
using ActionList = flatbuffers::Vector<flatbuffers::Offset<plan::Action>>;

/// The `index`-th step of a stream, counted from 1.
struct Done {
  uint32_t stream = 0, index = 0;
  StepPlace place{};
};

/// The last accesses of a run of bytes.
struct Bytes {
  uint64_t end;
  Done write;              ///< index 0: none
  std::vector<Done> reads; ///< since the write, the last of each stream
};

class Walk {
public:
  Walk(const plan::Program &program, const ActionList *actions, const Unordered &unordered)
      : program(program), actions(actions), unordered(unordered) {
    for (uint32_t a = 0; a < length(actions); ++a)
      for (const plan::Step *step : stepsOf(a))
        if (std::ranges::find(streams, step->stream()) == streams.end())
          streams.push_back(step->stream());
    clocks.assign(streams.size(), std::vector<uint32_t>(streams.size(), 0));
    known.resize(streams.size());
    places.resize(length(program.slots()));
    for (uint32_t s = 0; s < length(program.segments()); ++s) {
      auto &steps = uses.emplace_back();
      for (uint32_t i = 0; i < length(program.segments()->Get(s)->steps()); ++i) {
        auto &list = steps.emplace_back();
        check::forEachAccess(*program.segments()->Get(s)->steps()->Get(i), program, [&](const Access &access) {
          const bool inArena = program.slots()->Get(access.slot)->space() != plan::Space::Input;
          if (inArena && access.bytes > 0)
            list.push_back({access.kind == Access::Read, access.slot, access.begin, access.bytes});
        });
      }
    }
  }

  void run() {
    if (streams.size() < 2)
      return;
    for (uint32_t a = 0; a < length(actions); ++a) {
      const plan::Action &action = *actions->Get(a);
      const plan::Segment &segment = *program.segments()->Get(action.segment());
      for (uint32_t i = 0; i < length(segment.slots()); ++i)
        places[segment.slots()->Get(i)] = program.layouts()->Get(action.layout())->offsets()->Get(i);
      const auto steps = stepsOf(a);
      byPlace.emplace_back(steps.size());
      for (uint32_t s = 0; s < steps.size(); ++s)
        step(action, *steps[s], uses[action.segment()][s], {a, s});
    }
  }

private:
  std::vector<const plan::Step *> stepsOf(uint32_t action) const {
    const auto *steps = program.segments()->Get(actions->Get(action)->segment())->steps();
    std::vector<const plan::Step *> list;
    for (uint32_t i = 0; i < length(steps); ++i)
      list.push_back(steps->Get(i));
    return list;
  }

  uint32_t numberOf(uint32_t stream) const {
    return static_cast<uint32_t>(std::ranges::find(streams, stream) - streams.begin());
  }

  /// An access of a step to a slot of the arena, from byte `begin` of the slot.
  struct Use {
    bool reads; ///< otherwise it writes, or may
    uint32_t slot;
    uint64_t begin, bytes;
  };

  void step(const plan::Action &action, const plan::Step &step, const std::vector<Use> &list, const StepPlace &place) {
    const uint32_t stream = numberOf(step.stream());
    std::vector<uint32_t> &clock = clocks[stream];
    for (uint32_t i = 0; i < length(action.waits()); ++i)
      if (const plan::Wait *wait = action.waits()->Get(i); wait->step() == place.step)
        follow(clock, byPlace[wait->on_action()][wait->on_step()]);
    const Done now{stream, clock[stream] + 1, place};
    std::vector<Touched> touched;
    for (const Use &use : list)
      look(use, now, touched);
    // Latest first: a wait for a step includes everything that this step has waited for.
    std::ranges::sort(touched, [](const Touched &a, const Touched &b) {
      return std::pair(a.before.place.action, a.before.place.step) >
             std::pair(b.before.place.action, b.before.place.step);
    });
    for (const Touched &one : touched)
      if (clock[one.before.stream] < one.before.index) {
        unordered(one.before.place, place, one.slot);
        follow(clock, one.before);
      }
    clock[stream] = now.index;
    known[stream].push_back(clock);
    byPlace[place.action][place.step] = now;
    for (const Use &use : list)
      note(use, now);
  }

  /// Updates the clock: once `before` has completed, so has everything before it.
  void follow(std::vector<uint32_t> &clock, const Done &before) const {
    const std::vector<uint32_t> &then = known[before.stream][before.index - 1];
    for (size_t i = 0; i < clock.size(); ++i)
      clock[i] = std::max(clock[i], then[i]);
  }

  struct Touched {
    Done before;
    uint32_t slot;
  };

  /// The first byte, as an offset in the arena.
  uint64_t beginOf(const Use &use) const {
    const plan::Slot &slot = *program.slots()->Get(use.slot);
    return use.begin + (slot.space() == plan::Space::Persistent ? slot.offset() : places[use.slot]);
  }

  /// Finds earlier accesses in other streams that this one must follow.
  void look(const Use &use, const Done &now, std::vector<Touched> &touched) const {
    const uint64_t begin = beginOf(use), end = begin + use.bytes;
    auto at = memory.upper_bound(begin);
    if (at != memory.begin() && std::prev(at)->second.end > begin)
      --at;
    const auto add = [&](const Done &before) {
      if (before.index > 0 && before.stream != now.stream)
        touched.push_back({before, use.slot});
    };
    for (; at != memory.end() && at->first < end; ++at) {
      add(at->second.write);
      if (!use.reads)
        for (const Done &read : at->second.reads)
          add(read);
    }
  }

  /// Splits an entry at `address`.
  void cut(uint64_t address) {
    auto at = memory.upper_bound(address);
    if (at == memory.begin() || std::prev(at)->second.end <= address || std::prev(at)->first == address)
      return;
    Bytes rest = std::prev(at)->second;
    std::prev(at)->second.end = address;
    memory.emplace(address, std::move(rest));
  }

  void note(const Use &use, const Done &now) {
    const uint64_t begin = beginOf(use), end = begin + use.bytes;
    cut(begin);
    cut(end);
    if (!use.reads) {
      memory.erase(memory.lower_bound(begin), memory.lower_bound(end));
      memory[begin] = {end, now, {}};
      return;
    }
    for (uint64_t gap = begin; gap < end;) { // also records reads of bytes not accessed before
      auto at = memory.lower_bound(gap);
      if (at == memory.end() || at->first > gap)
        at = memory.emplace(gap, Bytes{at == memory.end() ? end : std::min(end, at->first), {}, {}}).first;
      auto &reads = at->second.reads;
      std::erase_if(reads, [&](const Done &read) { return read.stream == now.stream; });
      reads.push_back(now);
      gap = at->second.end;
    }
  }

  const plan::Program &program;
  const ActionList *actions;
  const Unordered &unordered;
  std::vector<uint32_t> streams;                         ///< their numbers, in order of first use
  std::vector<std::vector<uint32_t>> clocks;             ///< per stream: its knowledge of each stream's progress
  std::vector<std::vector<std::vector<uint32_t>>> known; ///< per stream and step: its clock after the step
  std::vector<std::vector<Done>> byPlace;                ///< per action and step
  std::vector<uint64_t> places;                          ///< by slot: its offset in the action
  std::vector<std::vector<std::vector<Use>>> uses;       ///< per segment and step
  std::map<uint64_t, Bytes> memory;                      ///< by first byte
};

} // namespace

void findUnordered(const plan::Program &program, bool eval, const Unordered &unordered) {
  Walk(program, eval ? program.eval() : program.train(), unordered).run();
}

uint32_t replicaStream(const plan::Plan &plan, uint32_t program) {
  std::optional<uint32_t> peers;
  for (uint32_t r = 0; r < length(plan.ranks()); ++r)
    if (const plan::Rank &rank = *plan.ranks()->Get(r); rank.program() == program)
      peers = std::min(peers.value_or(length(rank.peers())), length(rank.peers()));
  return 2 + 2 * peers.value_or(0);
}

uint32_t streamOf(const plan::Plan &plan, const plan::Step &step, uint32_t replicas) {
  const plan::Collective *collective = step.op_as_Collective();
  return collective && steps::amongReplicas(*collective, plan) ? replicas : steps::onGpu(step).stream;
}

std::string streamName(const plan::Plan &plan, uint32_t program, uint32_t number) {
  if (number == 0)
    return "computes";
  if (number == 1)
    return "collectives";
  if (number == replicaStream(plan, program))
    return "collectives of replicas";
  return fmt::format("{} peer {}", number % 2 == 0 ? "sends to" : "receives from", (number - 2) / 2);
}

LookupScratch lookupScratch(int64_t rows, int64_t count) {
  const auto words = [](int64_t n) { return (static_cast<uint64_t>(n) + 63) / 64 * 64; };
  return {64 + 2 * words(rows), 2 * words(rows) + 2 * words(count)};
}

uint64_t gpuWorkspace(const plan::Program &program) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < length(program.segments()); ++s) {
    const plan::Segment &segment = *program.segments()->Get(s);
    for (uint32_t i = 0; i < length(segment.steps()); ++i)
      most = std::max(most, steps::onGpu(*segment.steps()->Get(i)).workspace);
  }
  return most;
}

} // namespace cleave
