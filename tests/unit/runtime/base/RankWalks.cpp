// Ranks that run together: a rank waits for another one, and is tried again only after a wake.
#include "runtime/base/RankWalk.h"

#include <catch2/catch.hpp>

#include <utility>
#include <vector>

using namespace cleave;

TEST_CASE("ranks that run together do every item after those that it waits for") {
  // Item i of a rank waits for item i of the next rank.
  constexpr size_t ranks = 5, items = 7;
  RankWalk walk(ranks);
  std::vector<size_t> order;
  size_t tries = 0;
  walk.run([&](size_t rank, size_t item) {
    ++tries;
    if (item == items || (rank + 1 < ranks && walk.done(rank + 1) <= item))
      return false;
    order.push_back(rank);
    if (rank > 0)
      walk.wake(rank - 1);
    return true;
  });
  CHECK(order.size() == ranks * items);
  CHECK(tries <= 3 * ranks * items);
  CHECK(std::move(walk).done() == std::vector<size_t>(ranks, items));
}

TEST_CASE("ranks that wait for each other end the walk, which goes on after a wake") {
  RankWalk walk(2);
  bool open = false;
  const auto perform = [&](size_t rank, size_t item) {
    if (item == 2 || (item == 1 && !open && walk.done(1 - rank) < 2))
      return false;
    walk.wake(1 - rank);
    return true;
  };
  walk.run(perform);
  CHECK((walk.done(0) == 1 && walk.done(1) == 1));
  walk.run(perform); // nobody was woken
  CHECK(walk.done(0) == 1);
  open = true;
  walk.wake(1);
  walk.run(perform);
  CHECK((walk.done(0) == 2 && walk.done(1) == 2));
}
