#include "passes/place/Contour.h"

#include <algorithm>

namespace cleave::passes {

Contour::Contour(const std::vector<Piece> &pieces, const std::vector<uint64_t> &sizes)
    : sizes(sizes), live(sizes.size()) {
  std::vector<int64_t> times; // at which something begins or ends
  for (const Piece &piece : pieces)
    times.insert(times.end(), {piece.first, piece.last + 1});
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto numberOf = [&](int64_t time) {
    return static_cast<uint32_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  for (const Piece &piece : pieces)
    live[piece.interval].push_back({numberOf(piece.first), numberOf(piece.last + 1)});
  horizon = times.empty() ? 0 : static_cast<uint32_t>(times.size() - 1);
}

uint64_t Contour::place(const std::vector<uint32_t> &order, uint64_t most, std::vector<uint64_t> &offsets,
                        uint64_t &work) {
  offsets.assign(sizes.size(), 0);
  segments.assign(1, {0, horizon, 0});
  uint64_t bytes = 0;
  std::vector<uint32_t> left;
  for (uint32_t i : order)
    if (sizes[i] && !live[i].empty())
      left.push_back(i);
  while (!left.empty()) {
    const auto lowest = std::min_element(segments.begin(), segments.end(),
                                         [](const Segment &a, const Segment &b) { return a.height < b.height; });
    const auto next = std::find_if(left.begin(), left.end(), [&](uint32_t i) { return fits(live[i], *lowest); });
    work += segments.size() + static_cast<uint64_t>(next - left.begin()) + 1;
    if (next == left.end()) {
      lift(static_cast<size_t>(lowest - segments.begin()));
      continue;
    }
    const uint32_t i = *next;
    left.erase(next);
    offsets[i] = lowest->height;
    bytes = std::max(bytes, offsets[i] + sizes[i]);
    if (bytes > most)
      return UINT64_MAX;
    raise(live[i], offsets[i] + sizes[i]);
  }
  return bytes;
}

/// Whether one lifetime is within the lowest segment, and nothing is higher during the others.
bool Contour::fits(const Live &lifetimes, const Segment &lowest) const {
  const auto within = [&](const auto &life) { return life.first >= lowest.begin && life.second <= lowest.end; };
  if (lifetimes.size() == 1)
    return within(lifetimes.front());
  return std::any_of(lifetimes.begin(), lifetimes.end(), within) &&
         std::all_of(lifetimes.begin(), lifetimes.end(), [&](const auto &life) {
           const Segment &segment = segments[segmentAt(life.first)];
           return segment.height == lowest.height && life.second <= segment.end;
         });
}

size_t Contour::segmentAt(uint32_t time) const {
  const auto after = std::upper_bound(segments.begin(), segments.end(), time,
                                      [](uint32_t at, const Segment &segment) { return at < segment.begin; });
  return static_cast<size_t>(after - segments.begin()) - 1;
}

/// Raises a segment to its lower neighbour.
void Contour::lift(size_t lowest) {
  uint64_t height = UINT64_MAX;
  if (lowest > 0)
    height = segments[lowest - 1].height;
  if (lowest + 1 < segments.size())
    height = std::min(height, segments[lowest + 1].height);
  raise({{segments[lowest].begin, segments[lowest].end}}, height);
}

/// Sets the height during lifetimes that each lie within a segment.
void Contour::raise(const Live &lifetimes, uint64_t height) {
  for (const auto &[begin, end] : lifetimes) {
    const size_t at = segmentAt(begin);
    const Segment old = segments[at];
    std::vector<Segment> now;
    if (old.begin < begin)
      now.push_back({old.begin, begin, old.height});
    now.push_back({begin, end, height});
    if (end < old.end)
      now.push_back({end, old.end, old.height});
    auto from = segments.begin() + static_cast<std::ptrdiff_t>(at), to = from + 1;
    if (from != segments.begin() && std::prev(from)->height == now.front().height)
      now.front().begin = (--from)->begin;
    if (to != segments.end() && to->height == now.back().height)
      now.back().end = (to++)->end;
    from = segments.erase(from, to);
    segments.insert(from, now.begin(), now.end());
  }
}

} // namespace cleave::passes
