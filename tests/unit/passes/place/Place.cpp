// Memory placement: no overlaps, distance to the lower bound, known optima, speed.
#include "passes/place/Place.h"
#include "passes/place/Contour.h"

#include <catch2/catch.hpp>

#include <random>

using namespace cleave::passes;

namespace {

bool meet(const Interval &a, const Interval &b) {
  for (const Lifetime &x : a.live)
    for (const Lifetime &y : b.live)
      if (x.first <= y.last && y.first <= x.last)
        return true;
  return false;
}

/// Counts pairs that overlap in time and in memory, unaligned offsets, ends beyond the size, and a size
/// below the lower bound.
int defects(const std::vector<Interval> &intervals, const Placement &placement) {
  int found = placement.bytes < placement.lowerBound;
  for (size_t i = 0; i < intervals.size(); ++i) {
    uint64_t from = placement.offsets[i], to = from + intervals[i].bytes;
    found += from % 64 != 0 || to > placement.bytes;
    for (size_t j = 0; j < i; ++j)
      found += intervals[i].bytes && intervals[j].bytes && from < placement.offsets[j] + intervals[j].bytes &&
               placement.offsets[j] < to && meet(intervals[i], intervals[j]);
  }
  return found;
}

std::vector<Interval> randomIntervals(unsigned seed, int count, int64_t horizon, int64_t longest, int pieces = 1) {
  std::mt19937 engine(seed);
  std::vector<Interval> intervals(static_cast<size_t>(count));
  for (Interval &interval : intervals) {
    interval.bytes = engine() % 5000;
    for (int p = 0; p < pieces; ++p) {
      int64_t first = static_cast<int64_t>(engine() % static_cast<unsigned>(horizon));
      interval.live.push_back({first, first + static_cast<int64_t>(engine() % static_cast<unsigned>(longest))});
    }
  }
  return intervals;
}

} // namespace

TEST_CASE("placement reuses memory of the dead", "[place]") {
  std::vector<Interval> chain;
  for (int64_t t = 0; t < 10; ++t)
    chain.push_back({64, {{t, t + 1}}});
  Placement placement = place(chain);
  CHECK(placement.bytes == 128);
  CHECK(placement.lowerBound == 128);
  CHECK(defects(chain, placement) == 0);
}

TEST_CASE("placement of nothing and of empty buffers", "[place]") {
  CHECK(place({}).bytes == 0);
  std::vector<Interval> some{{0, {{0, 5}}}, {1, {{0, 5}}}};
  CHECK(place(some).bytes == 64);
}

TEST_CASE("placement finds the optimum where greedy by size alone does not", "[place]") {
  // Small buffers around a large one: sizes in units of 64 bytes.
  std::vector<Interval> intervals{
      {4 * 64, {{0, 1}}}, {3 * 64, {{1, 3}}}, {4 * 64, {{3, 5}}}, {3 * 64, {{0, 0}}}, {1 * 64, {{2, 5}}}};
  Placement placement = place(intervals);
  CHECK(placement.bytes == placement.lowerBound);
  CHECK(defects(intervals, placement) == 0);
}

TEST_CASE("a contour reaches the bound of nested lifetimes, and respects buffers with several", "[place]") {
  const std::vector<Piece> pieces{{0, 9, 0}, {1, 8, 1}, {2, 7, 2}, {0, 1, 3}, {8, 9, 3}};
  const std::vector<uint64_t> sizes{64, 64, 128, 128};
  Contour contour(pieces, sizes);
  std::vector<uint64_t> offsets;
  uint64_t work = 0;
  CHECK(contour.place({0, 1, 2, 3}, UINT64_MAX, offsets, work) == 256);
  CHECK(offsets == std::vector<uint64_t>{0, 64, 128, 128});
  CHECK(contour.place({0, 1, 2, 3}, 255, offsets, work) == UINT64_MAX);
}

TEST_CASE("placement of random instances never overlaps and stays near the bound", "[place]") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    auto intervals = randomIntervals(seed, 200, 300, 40, seed % 3 == 2 ? 2 : 1);
    Placement placement = place(intervals);
    CHECK(defects(intervals, placement) == 0);
    CHECK(placement.bytes <= placement.lowerBound * (seed % 3 == 2 ? 1.35 : 1.15));
    const Placement first = place(intervals, 64, false);
    CHECK(defects(intervals, first) == 0);
    CHECK(first.bytes >= placement.bytes);
    CHECK(first.lowerBound == placement.lowerBound);
  }
}

TEST_CASE("placement of a training step: kept activations and temporaries reach the bound", "[place]") {
  std::vector<Interval> intervals;
  const int64_t layers = 24, end = 4 * layers;
  for (int64_t l = 0; l < layers; ++l) {
    intervals.push_back({4096, {{l * 2, end - l * 2}}});           // kept for backward
    intervals.push_back({16384, {{l * 2, l * 2 + 1}}});            // live within the layer
    intervals.push_back({4096, {{end - l * 2, end - l * 2 + 2}}}); // gradient of the activation
    intervals.push_back({16384, {{end - l * 2, end - l * 2 + 1}}});
  }
  Placement placement = place(intervals);
  CHECK(defects(intervals, placement) == 0);
  CHECK(placement.bytes <= placement.lowerBound * 1.02);
}

TEST_CASE("placement of many intervals stays near the bound", "[place]") {
  for (int64_t longest : {20, 4000}) { // a small conflict graph; one that exceeds the limit
    auto intervals = randomIntervals(7, 100'000, 100'000, longest);
    Placement placement = place(intervals);
    INFO("longest " << longest << ": " << double(placement.bytes) / double(placement.lowerBound));
    CHECK(placement.bytes <= placement.lowerBound * 1.6);
  }
}
