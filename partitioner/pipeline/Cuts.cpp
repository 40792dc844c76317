// Balances costs by dynamic programming.
#include "partitioner/pipeline/Cuts.h"

#include <algorithm>
#include <limits>
#include <ranges>

namespace cleave::partitioner {

std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts) {
  size_t n = costs.size();
  std::vector<double> sum(n + 1, 0);
  for (size_t i = 0; i < n; ++i)
    sum[i + 1] = sum[i] + costs[i];
  // best[p][i]: the smallest possible maximum if the first i layers form p runs; from[p][i]: the start of the last run.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p)
    for (size_t i = p; i <= n; ++i) {
      // As the start of the last run moves right, the cost before it grows and its own cost shrinks: the optimum is
      // where the two costs cross.
      auto last = [&](size_t j) { return sum[i] - sum[j]; };
      auto firstWhere = [&](size_t end, auto holds) {
        const auto range = std::views::iota(p - 1, end);
        return p - 1 +
               static_cast<size_t>(std::ranges::partition_point(range, [&](size_t j) { return !holds(j); }) -
                                   range.begin());
      };
      const size_t meet = firstWhere(i - 1, [&](size_t j) { return best[p - 1][j] >= last(j); });
      best[p][i] = std::max(best[p - 1][meet], last(meet));
      if (meet > p - 1)
        best[p][i] = std::min(best[p][i], last(meet - 1));
      from[p][i] = firstWhere(meet, [&](size_t j) { return last(j) <= best[p][i]; }); // the first optimum
    }
  std::vector<size_t> begins(parts);
  for (size_t p = parts, i = n; p > 0; --p)
    i = begins[p - 1] = from[p][i];
  return begins;
}

std::vector<size_t> balancedCuts(const UnevenParts &parts) {
  constexpr double none = std::numeric_limits<double>::infinity();
  const size_t count = parts.kindOf.size(), n = parts.costs.front().size();
  std::vector<std::vector<double>> sums;
  for (const std::vector<double> &costs : parts.costs) {
    sums.emplace_back(n + 1, 0);
    for (size_t i = 0; i < n; ++i)
      sums.back()[i + 1] = sums.back()[i] + costs[i];
  }
  // As above; but the cost before the last run need not grow with its length, so every start is tried, from the end.
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(n + 1, none));
  std::vector<std::vector<size_t>> from(count + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t p = 1; p <= count; ++p)
    for (size_t i = p; i <= n; ++i) {
      const std::vector<double> &sum = sums[parts.kindOf[p - 1]];
      const size_t first = std::max(p - 1, parts.earliest(p - 1, i));
      for (size_t j = i; j-- > first && sum[i] - sum[j] < best[p][i];)
        if (const double longest = std::max(best[p - 1][j], sum[i] - sum[j]); longest < best[p][i])
          best[p][i] = longest, from[p][i] = j;
    }
  if (best[count][n] == none)
    return {};
  std::vector<size_t> begins(count);
  for (size_t p = count, i = n; p > 0; --p)
    i = begins[p - 1] = from[p][i];
  return begins;
}

} // namespace cleave::partitioner
