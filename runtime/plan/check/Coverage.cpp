// Written bytes as ranges; strided windows are split into their runs.
#include "runtime/plan/check/Coverage.h"

#include <algorithm>

namespace cleave::check {

namespace {

constexpr uint64_t mostRuns = 1 << 20; ///< a window with more runs counts as contiguous

/// Calls visit(begin, bytes) for each run, ascending unless the window contains bytes twice; stops if visit returns
/// false.
template <typename Visit> void forEachRun(const Access &access, Visit visit) {
  uint64_t runs = 1;
  for (const Access::Repeat &repeat : access.repeats)
    runs = std::min(runs * repeat.count, mostRuns + 1); // each count is below 2^46
  if (access.repeats.empty() || runs > mostRuns) {
    visit(access.begin, access.bytes);
    return;
  }
  for (uint64_t i = 0; i < runs; ++i) {
    uint64_t at = access.begin, rest = i;
    for (const Access::Repeat &repeat : access.repeats) {
      at += rest % repeat.count * repeat.stride;
      rest /= repeat.count;
    }
    if (!visit(at, access.run))
      return;
  }
}

} // namespace

uint64_t Coverage::firstOutside(uint64_t begin, uint64_t end) const {
  auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                [](uint64_t at, const Range &range) { return at < range.begin; });
  if (after == ranges.begin() || std::prev(after)->end <= begin)
    return begin;
  return std::min(end, std::prev(after)->end);
}

void Coverage::add(const Access &access) {
  if (firstOutside(access.begin, access.begin + access.bytes) == access.begin + access.bytes)
    return;
  std::vector<Range> added, all;
  forEachRun(access, [&](uint64_t begin, uint64_t bytes) {
    added.push_back({begin, begin + bytes});
    return true;
  });
  all.reserve(ranges.size() + added.size());
  std::merge(ranges.begin(), ranges.end(), added.begin(), added.end(), std::back_inserter(all),
             [](const Range &a, const Range &b) { return a.begin < b.begin; });
  ranges.clear();
  for (const Range &range : all)
    if (!ranges.empty() && range.begin <= ranges.back().end)
      ranges.back().end = std::max(ranges.back().end, range.end);
    else
      ranges.push_back(range);
}

std::optional<uint64_t> Coverage::missing(const Access &access, uint64_t begin, uint64_t bytes) const {
  const uint64_t last = begin + bytes;
  if (firstOutside(begin, last) == last)
    return std::nullopt;
  std::optional<uint64_t> found;
  forEachRun(access, [&](uint64_t from, uint64_t size) {
    const uint64_t to = std::min(from + size, last);
    if (from >= to)
      return false;
    if (uint64_t at = firstOutside(from, to); at != to)
      found = at;
    return !found;
  });
  return found;
}

} // namespace cleave::check
