// Collectives among processes of one host through a shared segment. Data move in rounds through fixed slots, in a
// pipeline: while the members copy round r into their slots, they reduce round r - 1, each its own
// part, and read the results of round r - 2. Reductions are in member order (Reduce.h).
//
// Each member has a counter of the steps that it has finished; the others wait for it. Members do the same steps in the
// same order, so a step's number says which data are complete and which slots are free again.
#pragma once
#include "runtime/comm/Communicator.h"
#include "runtime/comm/Event.h"
#include "runtime/comm/SharedSegment.h"
#include "runtime/plan/Slices.h"

#include <functional>

namespace cleave {

/// A wait until a member's counter has reached a value.
struct SharedWait {
  unsigned member;
  Event &counter;
  uint32_t value;
  bool done() const { return reached(counter.value()); }
  /// Sleeps until the counter moves or some milliseconds have passed.
  void rest() const;

private:
  bool reached(uint32_t now) const { return static_cast<int32_t>(now - value) >= 0; }
};

class SharedGroup {
public:
  static constexpr unsigned mostMembers = 128; ///< so that a segment has at most 80 MiB
  /// What a segment for so many members must hold.
  static size_t bytes(unsigned members);

  /// `spins`: how often a wait looks before it calls `wait`, which returns when it is done or throws.
  SharedGroup(SharedSegment segment, unsigned members, unsigned member, unsigned spins,
              std::function<void(const SharedWait &)> wait);
  void run(plan::CollectiveKind kind, plan::ReduceKind reduce, plan::DType dtype,
           std::span<const CollectivePart> parts);

private:
  struct Call;
  void allReduce(const Call &call, std::span<const CollectivePart> parts);
  void reduce(const Call &call, std::span<const CollectivePart> parts, uint64_t step, int64_t first, Part own);
  void allGather(const Call &call, const CollectivePart &part);
  void reduceScatter(const Call &call, const CollectivePart &part);
  void allToAll(const Call &call, const CollectivePart &part);
  void broadcast(const Call &call, const CollectivePart &part);

  template <typename Copy, typename Work, typename Collect>
  void pipeline(int64_t rounds, Copy copy, Work work, Collect collect);
  void arrive();
  void awaitAll();
  Event &counter(unsigned member) const;
  std::byte *slot(uint64_t step, unsigned member) const;
  template <typename Visit> void others(Visit visit) const {
    for (unsigned i = 1; i < members; ++i) // each member starts with another neighbour
      visit((me + i) % members);
  }

  SharedSegment segment;
  unsigned members, me, spins;
  std::function<void(const SharedWait &)> wait;
  std::byte *slots;
  uint64_t steps = 0; ///< that this member has finished
  std::vector<const void *> sources;
};

} // namespace cleave
