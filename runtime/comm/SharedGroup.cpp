// Collectives through shared memory.
#include "runtime/comm/SharedGroup.h"

#include "runtime/comm/Reduce.h"
#include "runtime/comm/Shares.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <new>

namespace cleave {

static constexpr int64_t slotBytes = 128 << 10;    // a member's data of a round
static constexpr unsigned depth = 5;               // slots of a member; see `pipeline`
static constexpr int64_t gatheredBytes = 16 << 10; // at most this is reduced by every member
static constexpr long restNanoseconds = 2'000'000; // how long a sleeping rank does not look for failures and messages
static constexpr size_t counterBytes = 64;         // a counter has a cache line for itself

struct SharedGroup::Call {
  plan::ReduceKind reduce;
  plan::DType dtype;
  int64_t element; ///< bytes
};

void SharedWait::rest() const {
  if (const uint32_t now = counter.value(); !reached(now))
    counter.sleep(now, restNanoseconds);
}

static size_t slotsBegin(unsigned members) { return members * counterBytes; }

size_t SharedGroup::bytes(unsigned members) { return slotsBegin(members) + size_t{depth} * members * slotBytes; }

SharedGroup::SharedGroup(SharedSegment given, unsigned members, unsigned member, unsigned spins,
                         std::function<void(const SharedWait &)> wait)
    : segment(std::move(given)), members(members), me(member), spins(spins), wait(std::move(wait)), sources(members) {
  static_assert(sizeof(Event) <= counterBytes && std::atomic<uint32_t>::is_always_lock_free);
  slots = segment.data() + slotsBegin(members);
}

Event &SharedGroup::counter(unsigned member) const {
  return *std::launder(reinterpret_cast<Event *>(segment.data() + member * counterBytes));
}

std::byte *SharedGroup::slot(uint64_t step, unsigned member) const {
  return slots + (step % depth * members + member) * slotBytes;
}

void SharedGroup::arrive() {
  ++steps;
  counter(me).advance();
}

/// Waits until all members have finished as many steps as this one.
void SharedGroup::awaitAll() {
  others([&](unsigned m) {
    const SharedWait awaited{m, counter(m), static_cast<uint32_t>(steps)};
    for (unsigned i = 0; i < spins && !awaited.done(); ++i)
      pauseProcessor();
    if (!awaited.done())
      wait(awaited);
  });
}

/// In each step: copy(round, slot step) into the own slot; then, when all have finished the step before, work(round
/// before); then collect(round before that), for which the slots remain as they are.
///
/// A slot is free again after `depth` steps. Those who collect round r do so after their step r + 2 and before they
/// finish step r + 3. A member that copies in step r + 5 has, in step r + 4, waited for all to finish step r + 3.
template <typename Copy, typename Work, typename Collect>
void SharedGroup::pipeline(int64_t rounds, Copy copy, Work work, Collect collect) {
  constexpr bool collects = !std::is_same_v<Collect, std::nullptr_t>;
  const uint64_t first = steps;
  const auto each = [&](auto stage, int64_t round) {
    if (round >= 0 && round < rounds)
      stage(round, first + static_cast<uint64_t>(round));
  };
  for (int64_t round = 0; round < rounds + (collects ? 2 : 1); ++round) {
    each(copy, round);
    awaitAll();
    each(work, round - 1);
    arrive();
    if constexpr (collects)
      each(collect, round - 2);
  }
}

/// Calls visit(part, begin in the part, place, count) for the pieces of elements [begin, begin + count) of all parts
/// laid end to end; `place` counts from `begin`.
template <typename Visit>
static void eachPiece(std::span<const CollectivePart> parts, int64_t begin, int64_t count, Visit visit) {
  int64_t start = 0;
  for (const CollectivePart &part : parts) {
    const int64_t from = std::max(begin, start), to = std::min(begin + count, start + part.count);
    if (from < to)
      visit(part, from - start, from - begin, to - from);
    start += part.count;
  }
}

/// An address in memory that may be null for 0 bytes.
static const std::byte *inputAt(const CollectivePart &part, int64_t bytes) {
  return static_cast<const std::byte *>(part.in) + bytes;
}
static std::byte *outputAt(const CollectivePart &part, int64_t bytes) {
  return static_cast<std::byte *>(part.out) + bytes;
}

/// Copies elements of this member's parts to a slot.
static void copyIn(std::span<const CollectivePart> parts, int64_t begin, int64_t count, int64_t element,
                   std::byte *slot) {
  eachPiece(parts, begin, count, [&](const CollectivePart &part, int64_t at, int64_t place, int64_t size) {
    copyBytes(slot + place * element, inputAt(part, at * element), size * element);
  });
}

/// Reduces elements [begin, begin + count) of the slots of a step, in which the parts' elements from `first` on are.
/// The own input need not be in the slots.
void SharedGroup::reduce(const Call &call, std::span<const CollectivePart> parts, uint64_t step, int64_t first,
                         Part own) {
  eachPiece(parts, first + own.begin, own.count,
            [&](const CollectivePart &part, int64_t at, int64_t place, int64_t size) {
              for (unsigned m = 0; m < members; ++m)
                sources[m] = slot(step, m) + (own.begin + place) * call.element;
              sources[me] = inputAt(part, at * call.element);
              reduceElements(call.dtype, call.reduce, sources, 0, outputAt(part, at * call.element), size);
            });
}

void SharedGroup::allReduce(const Call &call, std::span<const CollectivePart> parts) {
  int64_t all = 0;
  for (const CollectivePart &part : parts)
    all += part.count;
  if (all == 0)
    return;
  if (all * call.element <= gatheredBytes) { // all members reduce everything: one step
    copyIn(parts, 0, all, call.element, slot(steps, me));
    arrive();
    awaitAll();
    return reduce(call, parts, steps - 1, 0, {0, all});
  }
  const int64_t most = slotBytes / call.element;
  const auto size = [&](int64_t round) { return std::min(most, all - round * most); };
  const auto partOf = [&](int64_t round, unsigned m) { return splitLines(size(round), call.element, members, m); };
  pipeline((all + most - 1) / most,
           [&](int64_t round, uint64_t step) { // all but the part that this member reduces
             const Part own = partOf(round, me);
             const int64_t first = round * most, end = own.begin + own.count;
             copyIn(parts, first, own.begin, call.element, slot(step, me));
             copyIn(parts, first + end, size(round) - end, call.element, slot(step, me) + end * call.element);
           },
           [&](int64_t round, uint64_t step) {
             const Part own = partOf(round, me);
             reduce(call, parts, step, round * most, own);
             eachPiece(parts, round * most + own.begin, own.count,
                       [&](const CollectivePart &part, int64_t at, int64_t place, int64_t count) {
                         copyBytes(slot(step, me) + (own.begin + place) * call.element,
                                   outputAt(part, at * call.element), count * call.element);
                       });
           },
           [&](int64_t round, uint64_t step) {
             others([&](unsigned m) {
               const Part result = partOf(round, m);
               eachPiece(parts, round * most + result.begin, result.count,
                         [&](const CollectivePart &part, int64_t at, int64_t place, int64_t count) {
                           copyBytes(outputAt(part, at * call.element),
                                     slot(step, m) + (result.begin + place) * call.element, count * call.element);
                         });
             });
           });
}

void SharedGroup::allGather(const Call &call, const CollectivePart &part) {
  const Shares shares(part, call.element);
  shares.toWhole(me, 0, shares.bytes(me), inputAt(part, 0), part.out);
  pipeline((shares.largest() + slotBytes - 1) / slotBytes,
           [&](int64_t round, uint64_t step) {
             if (const int64_t bytes = shares.bytesFrom(me, round * slotBytes, slotBytes))
               copyBytes(slot(step, me), inputAt(part, round * slotBytes), bytes);
           },
           [&](int64_t round, uint64_t step) {
             others([&](unsigned m) {
               shares.toWhole(m, round * slotBytes, shares.bytesFrom(m, round * slotBytes, slotBytes), slot(step, m),
                              part.out);
             });
           },
           nullptr);
}

/// Bytes for each member in a slot that has data for all.
static int64_t blockBytes(unsigned members) { return slotBytes / members / 64 * 64; }

void SharedGroup::reduceScatter(const Call &call, const CollectivePart &part) {
  const Shares shares(part, call.element);
  const int64_t block = blockBytes(members);
  pipeline((shares.largest() + block - 1) / block,
           [&](int64_t round, uint64_t step) {
             for (unsigned m = 0; m < members; ++m)
               shares.fromWhole(m, round * block, shares.bytesFrom(m, round * block, block), part.in,
                                slot(step, me) + m * block);
           },
           [&](int64_t round, uint64_t step) {
             for (unsigned m = 0; m < members; ++m)
               sources[m] = slot(step, m) + me * block;
             if (const int64_t bytes = shares.bytesFrom(me, round * block, block))
               reduceElements(call.dtype, call.reduce, sources, 0, outputAt(part, round * block), bytes / call.element);
           },
           nullptr);
}

void SharedGroup::allToAll(const Call &call, const CollectivePart &part) {
  const int64_t each = part.count / members * call.element, block = blockBytes(members);
  const auto size = [&](int64_t round) { return std::min(block, each - round * block); };
  if (part.out != part.in)
    copyBytes(outputAt(part, me * each), inputAt(part, me * each), each);
  pipeline((each + block - 1) / block,
           [&](int64_t round, uint64_t step) {
             others([&](unsigned m) {
               copyBytes(slot(step, me) + m * block, inputAt(part, m * each + round * block), size(round));
             });
           },
           [&](int64_t round, uint64_t step) {
             others([&](unsigned m) {
               copyBytes(outputAt(part, m * each + round * block), slot(step, m) + me * block, size(round));
             });
           },
           nullptr);
}

void SharedGroup::broadcast(const Call &call, const CollectivePart &part) {
  const int64_t bytes = part.count * call.element;
  const auto size = [&](int64_t round) { return std::min(slotBytes, bytes - round * slotBytes); };
  if (me == 0 && part.out != part.in)
    copyBytes(part.out, part.in, bytes);
  pipeline((bytes + slotBytes - 1) / slotBytes,
           [&](int64_t round, uint64_t step) {
             if (me == 0)
               copyBytes(slot(step, 0), inputAt(part, round * slotBytes), size(round));
           },
           [&](int64_t round, uint64_t step) {
             if (me != 0)
               copyBytes(outputAt(part, round * slotBytes), slot(step, 0), size(round));
           },
           nullptr);
}

void SharedGroup::run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
                      std::span<const CollectivePart> parts) {
  const Call call{reduce, dtype, static_cast<int64_t>(dtypeSize(dtype))};
  if (kind == plan::CollectiveKind::AllReduce)
    return allReduce(call, parts);
  for (const CollectivePart &part : parts)
    switch (kind) {
    case plan::CollectiveKind::AllReduce:
      break;
    case plan::CollectiveKind::AllGather:
      allGather(call, part);
      break;
    case plan::CollectiveKind::ReduceScatter:
      reduceScatter(call, part);
      break;
    case plan::CollectiveKind::AllToAll:
      allToAll(call, part);
      break;
    case plan::CollectiveKind::Broadcast:
      broadcast(call, part);
      break;
    }
}

} // namespace cleave
