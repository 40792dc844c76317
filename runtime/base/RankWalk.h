// Runs ranks together: each does its items in order, until all have ended or wait for each other.
#pragma once
#include <cstddef>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

namespace cleave {

/// Knows how many items each rank has done, and which ranks may go on. What an item waits for, and how long it takes,
/// is up to the caller. A rank that waits is tried again only after wake(), so that a walk takes time linear in its
/// items and wakes.
class RankWalk {
public:
  explicit RankWalk(size_t ranks) : items(ranks), awake(ranks, true), queue(ranks) {
    std::iota(queue.begin(), queue.end(), size_t{0});
  }

  /// The number of items that a rank has done: the index of its next one.
  size_t done(size_t rank) const & { return items[rank]; }
  std::vector<size_t> done() && { return std::move(items); }

  /// To be called after something has happened for which `rank` may wait.
  void wake(size_t rank) {
    if (!awake[rank])
      queue.push_back(rank);
    awake[rank] = true;
  }

  /// Calls perform(rank, item): first for all ranks in order, then for those that have been woken, until no rank can go
  /// on. perform does the item and returns true; it returns false if the item must wait or the rank has ended. Can be
  /// called again after a wake.
  template <class Perform> void run(Perform perform) {
    while (!queue.empty()) {
      const size_t rank = queue.front();
      queue.pop_front();
      awake[rank] = false;
      while (perform(rank, items[rank]))
        ++items[rank];
    }
  }

private:
  std::vector<size_t> items;
  std::vector<char> awake; // the ranks of the queue
  std::deque<size_t> queue;
};

} // namespace cleave
