// Placement along a contour and greedily over a matrix of conflicts, in several orders, with local improvement; a free
// list for very large problems.
#include "passes/place/Place.h"

#include "passes/place/Contour.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

namespace cleave::passes {

namespace {

constexpr size_t maxIntervals = 8'000;      ///< limit for a matrix of conflicts
constexpr uint64_t workBudget = 10'000'000; ///< limit for what all passes examine
constexpr int mostIdlePasses = 1'000;       ///< passes in a row that find nothing better, after which it ends

/// How the next place is found for an order of intervals.
enum class Method {
  BestFit,  ///< the smallest gap
  FirstFit, ///< the lowest gap
  Contour,  ///< Contour.h
};

std::vector<uint64_t> roundedSizes(const std::vector<Interval> &intervals, uint64_t alignment) {
  std::vector<uint64_t> sizes;
  for (const Interval &interval : intervals)
    sizes.push_back((interval.bytes + alignment - 1) / alignment * alignment);
  return sizes;
}

std::vector<Piece> piecesByStart(const std::vector<Interval> &intervals) {
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < intervals.size(); ++i) {
    std::vector<Lifetime> live = intervals[i].live;
    std::sort(live.begin(), live.end(), [](const Lifetime &a, const Lifetime &b) { return a.first < b.first; });
    size_t own = pieces.size(); // pieces of this interval; overlapping ones are merged
    for (const Lifetime &life : live) {
      assert(life.first <= life.last && "a lifetime ends before it begins");
      if (pieces.size() > own && life.first <= pieces.back().last + 1)
        pieces.back().last = std::max(pieces.back().last, life.last);
      else
        pieces.push_back({life.first, life.last, i});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece &a, const Piece &b) {
    return std::tie(a.first, a.last, a.interval) < std::tie(b.first, b.last, b.interval);
  });
  return pieces;
}

class Placer {
public:
  Placer(const std::vector<Interval> &intervals, uint64_t alignment)
      : intervals(intervals), sizes(roundedSizes(intervals, alignment)), pieces(piecesByStart(intervals)),
        contour(pieces, sizes) {}

  Placement run(bool tight) {
    best.lowerBound = liveSum();
    if (intervals.size() > maxIntervals) {
      placeByTime();
      return best;
    }
    findConflicts();
    tryOrders(tight);
    if (tight)
      improve();
    return best;
  }

  uint64_t liveSum() const {
    uint64_t largest = 0;
    std::multimap<int64_t, uint64_t> ends;
    uint64_t sum = 0;
    for (const Piece &piece : pieces) {
      while (!ends.empty() && ends.begin()->first < piece.first)
        sum -= ends.begin()->second, ends.erase(ends.begin());
      sum += sizes[piece.interval];
      ends.emplace(piece.last, sizes[piece.interval]);
      largest = std::max(largest, sum);
    }
    return largest;
  }

private:
  /// Sets a bit for every two intervals that are live together.
  void findConflicts() {
    words = (intervals.size() + 63) / 64;
    conflicts.assign(intervals.size() * words, 0);
    std::vector<uint64_t> alive(words);
    using End = std::pair<int64_t, uint32_t>; // last time, interval
    std::priority_queue<End, std::vector<End>, std::greater<>> ends;
    for (const Piece &piece : pieces) { // row of each piece: what is live at its start
      for (; !ends.empty() && ends.top().first < piece.first; ends.pop())
        alive[ends.top().second / 64] &= ~bitOf(ends.top().second);
      for (size_t word = 0; word < words; ++word)
        conflicts[piece.interval * words + word] |= alive[word];
      alive[piece.interval / 64] |= bitOf(piece.interval);
      ends.emplace(piece.last, piece.interval);
    }
    for (uint32_t i = 0; i < intervals.size(); ++i) // the other direction
      for (size_t word = 0; word < words; ++word)
        for (uint64_t left = conflicts[i * words + word]; left; left &= left - 1)
          conflicts[(word * 64 + static_cast<size_t>(std::countr_zero(left))) * words + i / 64] |= bitOf(i);
  }
  static uint64_t bitOf(uint32_t i) { return uint64_t(1) << i % 64; }
  bool conflict(uint32_t a, uint32_t b) const { return (conflicts[a * words + b / 64] & bitOf(b)) != 0; }

  /// The lowest offset (or the tightest gap) at which `i` fits among the placed intervals that it conflicts with.
  /// `placed`: by offset.
  uint64_t findOffset(uint32_t i, const std::vector<uint64_t> &offsets, const std::vector<uint32_t> &placed,
                      bool bestFit) const {
    uint64_t end = 0, found = 0, foundGap = UINT64_MAX;
    for (uint32_t other : placed) {
      if (!conflict(i, other))
        continue;
      const uint64_t from = offsets[other];
      if (from >= end + sizes[i] && from - end < foundGap) {
        found = end, foundGap = from - end;
        if (!bestFit)
          return found;
      }
      end = std::max(end, from + sizes[other]);
    }
    return foundGap == UINT64_MAX ? end : found;
  }

  /// Places in this order and keeps the result if it is the best so far. Returns the bytes needed; if they are more
  /// than the best's, possibly only a part.
  uint64_t pass(const std::vector<uint32_t> &order, Method method) {
    std::vector<uint64_t> offsets(intervals.size());
    const uint64_t bytes = method == Method::Contour ? contour.place(order, best.bytes, offsets, work)
                                                     : placeGreedily(order, method == Method::BestFit, offsets);
    if (bytes < best.bytes) {
      best.bytes = bytes;
      best.offsets = std::move(offsets);
      bestOrder = order, bestMethod = method;
    }
    return bytes;
  }

  uint64_t placeGreedily(const std::vector<uint32_t> &order, bool bestFit, std::vector<uint64_t> &offsets) {
    std::vector<uint32_t> placed; // by offset
    uint64_t bytes = 0;
    for (uint32_t i : order) {
      if (!sizes[i])
        continue;
      work += placed.size();
      const uint64_t offset = offsets[i] = findOffset(i, offsets, placed, bestFit);
      bytes = std::max(bytes, offset + sizes[i]);
      if (bytes > best.bytes)
        return bytes;
      placed.insert(
          std::partition_point(placed.begin(), placed.end(), [&](uint32_t other) { return offsets[other] < offset; }),
          i);
    }
    return bytes;
  }

  bool done() const { return best.bytes <= best.lowerBound + best.lowerBound / 1000 || work > workBudget; }

  /// Order by descending key; ties by index.
  template <class Key> std::vector<uint32_t> orderBy(Key key) const {
    std::vector<uint32_t> order(intervals.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(key(b), a) < std::pair(key(a), b); });
    return order;
  }

  int64_t duration(uint32_t i) const {
    int64_t sum = 0;
    for (const Lifetime &life : intervals[i].live)
      sum += life.last - life.first + 1;
    return sum;
  }
  double weight(uint32_t i) const { return static_cast<double>(sizes[i]) * static_cast<double>(duration(i)); }

  void tryOrders(bool all) {
    auto start = [&](uint32_t i) { return intervals[i].live.empty() ? 0 : intervals[i].live.front().first; };
    std::vector<std::vector<uint32_t>> orders;
    orders.push_back(orderBy([&](uint32_t i) { return std::pair(sizes[i], duration(i)); }));
    orders.push_back(orderBy([&](uint32_t i) { return weight(i); }));
    orders.push_back(orderBy([&](uint32_t i) { return std::pair(duration(i), sizes[i]); }));
    orders.push_back(orderBy([&](uint32_t i) { return std::tuple(-start(i), duration(i), sizes[i]); }));
    for (Method method : {Method::BestFit, Method::Contour, Method::FirstFit})
      for (const auto &order : orders) {
        pass(order, method);
        if (!all || done())
          return;
      }
  }

  /// While the peak exceeds the lower bound: moves the intervals at the peak to the front, or forward by a random
  /// distance.
  void improve() {
    uint64_t state = 0x9e3779b97f4a7c15u;
    auto random = [&](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    for (int idle = 0; !done() && idle < mostIdlePasses; ++idle) {
      std::vector<uint32_t> order = bestOrder;
      bool toFront = random(2) == 0;
      for (size_t at = 0; at < order.size(); ++at) {
        uint32_t i = order[at];
        if (sizes[i] == 0 || best.offsets[i] + sizes[i] < best.bytes || at == 0)
          continue;
        size_t to = toFront ? 0 : random(at);
        std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(at),
                    order.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      }
      if (random(4) == 0 && order.size() > 1)
        std::swap(order[random(order.size())], order[random(order.size())]);
      uint64_t before = best.bytes;
      if (pass(order, bestMethod) == before)
        bestOrder = order; // equally good: another peak may be easier to lower
      if (best.bytes < before)
        idle = 0;
    }
  }

  /// For problems with too large a matrix: allocates and frees in time order, best fit.
  void placeByTime() {
    std::vector<Piece> whole; // several lifetimes are merged into one
    for (uint32_t i = 0; i < intervals.size(); ++i)
      if (!intervals[i].live.empty()) {
        Piece piece{INT64_MAX, INT64_MIN, i};
        for (const Lifetime &life : intervals[i].live)
          piece.first = std::min(piece.first, life.first), piece.last = std::max(piece.last, life.last);
        whole.push_back(piece);
      }
    std::sort(whole.begin(), whole.end(), [&](const Piece &a, const Piece &b) {
      return std::tuple(a.first, -a.last, sizes[b.interval], a.interval) <
             std::tuple(b.first, -b.last, sizes[a.interval], b.interval);
    });
    best.offsets.assign(intervals.size(), 0);
    std::map<uint64_t, uint64_t> holes;             // begin -> size
    std::set<std::pair<uint64_t, uint64_t>> bySize; // size, begin
    std::multimap<int64_t, uint32_t> ends;
    uint64_t top = 0;
    auto release = [&](uint64_t begin, uint64_t size) {
      auto next = holes.lower_bound(begin);
      if (next != holes.end() && next->first == begin + size) {
        size += next->second;
        bySize.erase({next->second, next->first});
        next = holes.erase(next);
      }
      if (next != holes.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == begin) {
          begin = previous->first, size += previous->second;
          bySize.erase({previous->second, previous->first});
          holes.erase(previous);
        }
      }
      holes[begin] = size;
      bySize.insert({size, begin});
    };
    auto take = [&](uint64_t size) {
      auto hole = bySize.lower_bound({size, 0});
      if (hole != bySize.end()) {
        auto [holeSize, begin] = *hole;
        bySize.erase(hole), holes.erase(begin);
        if (holeSize > size)
          release(begin + size, holeSize - size);
        return begin;
      }
      uint64_t begin = top; // grow; use the topmost hole if it is adjacent to the end
      if (!holes.empty() && holes.rbegin()->first + holes.rbegin()->second == top) {
        begin = holes.rbegin()->first;
        bySize.erase({holes.rbegin()->second, begin}), holes.erase(begin);
      }
      top = begin + size;
      return begin;
    };
    for (const Piece &piece : whole) {
      while (!ends.empty() && ends.begin()->first < piece.first) {
        uint32_t gone = ends.begin()->second;
        ends.erase(ends.begin());
        release(best.offsets[gone], sizes[gone]);
      }
      if (sizes[piece.interval] == 0)
        continue;
      best.offsets[piece.interval] = take(sizes[piece.interval]);
      ends.emplace(piece.last, piece.interval);
    }
    best.bytes = top;
  }

  const std::vector<Interval> &intervals;
  std::vector<uint64_t> sizes;
  std::vector<Piece> pieces;
  std::vector<uint64_t> conflicts; // a row of `words` for each interval
  size_t words = 0;
  uint64_t work = 0;
  Contour contour;
  Placement best{{}, UINT64_MAX, 0};
  std::vector<uint32_t> bestOrder;
  Method bestMethod = Method::BestFit;
};

} // namespace

Placement place(const std::vector<Interval> &intervals, uint64_t alignment, bool tight) {
  if (intervals.empty())
    return {};
  return Placer(intervals, alignment).run(tight);
}

uint64_t largestLiveSum(const std::vector<Interval> &intervals, uint64_t alignment) {
  return Placer(intervals, alignment).liveSum();
}

} // namespace cleave::passes
