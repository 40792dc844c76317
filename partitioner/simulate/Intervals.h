// Unions of time intervals.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

namespace cleave::partitioner {

/// Intervals in seconds; appending one that touches the last extends it.
class Intervals {
public:
  void add(double begin, double end) {
    if (end <= begin)
      return;
    if (!list.empty() && begin <= list.back().second && begin >= list.back().first)
      list.back().second = std::max(list.back().second, end);
    else
      list.emplace_back(begin, end);
  }

  /// Sorts the intervals and makes them disjoint.
  void merge() {
    std::sort(list.begin(), list.end());
    std::vector<std::pair<double, double>> merged;
    for (const auto &[begin, end] : list)
      if (!merged.empty() && begin <= merged.back().second)
        merged.back().second = std::max(merged.back().second, end);
      else
        merged.emplace_back(begin, end);
    list = std::move(merged);
  }

  /// Total length; after merge().
  double length() const {
    double all = 0;
    for (const auto &[begin, end] : list)
      all += end - begin;
    return all;
  }

  /// Length of the intersection; after merge() of both.
  double overlap(const Intervals &other) const {
    double all = 0;
    for (size_t a = 0, b = 0; a < list.size() && b < other.list.size();) {
      all +=
          std::max(0.0, std::min(list[a].second, other.list[b].second) - std::max(list[a].first, other.list[b].first));
      list[a].second < other.list[b].second ? ++a : ++b;
    }
    return all;
  }

private:
  std::vector<std::pair<double, double>> list;
};

} // namespace cleave::partitioner
