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

} // namespace cleave::partitioner
