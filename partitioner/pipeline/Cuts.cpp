// Balances costs by dynamic programming.
#include "partitioner/pipeline/Cuts.h"

#include <algorithm>
#include <limits>

namespace cleave::partitioner {

/// The sums of the first 0, 1, ... costs.
static std::vector<double> sumsOf(const std::vector<double> &costs) {
  std::vector<double> sums(costs.size() + 1, 0);
  for (size_t i = 0; i < costs.size(); ++i)
    sums[i + 1] = sums[i] + costs[i];
  return sums;
}

/// The starts of all runs. from[p][i]: the start of run p - 1 if the first p runs end before item i.
static std::vector<size_t> beginsOf(const std::vector<std::vector<size_t>> &from) {
  std::vector<size_t> begins(from.size() - 1);
  for (size_t p = begins.size(), i = from.front().size() - 1; p > 0; --p)
    i = begins[p - 1] = from[p][i];
  return begins;
}

std::vector<size_t> balancedCuts(const std::vector<double> &costs, size_t parts) {
  size_t n = costs.size();
  const std::vector<double> sum = sumsOf(costs);
  // best[p][i]: the smallest possible maximum if the first i layers form p runs.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
  best[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p) {
    // As the start of the last run moves right, the cost before it grows and its own cost shrinks: the optimum is where
    // the two costs cross, and that does not move left as the last run ends later.
    size_t meet = p - 1;
    for (size_t i = p; i <= n; ++i) {
      while (meet < i - 1 && best[p - 1][meet] < sum[i] - sum[meet])
        ++meet;
      best[p][i] = std::max(best[p - 1][meet], sum[i] - sum[meet]);
      if (meet > p - 1)
        best[p][i] = std::min(best[p][i], sum[i] - sum[meet - 1]);
    }
  }
  std::vector<size_t> begins(parts);
  for (size_t p = parts, end = n; p > 0; end = begins[--p]) { // the first optimum
    begins[p - 1] = p - 1;
    while (sum[end] - sum[begins[p - 1]] > best[p][end])
      ++begins[p - 1];
  }
  return begins;
}

std::vector<size_t> cutsBySends(const std::vector<double> &costs, size_t parts,
                                const std::function<double(size_t part, size_t begin)> &sends, double passes) {
  constexpr double none = std::numeric_limits<double>::infinity(), factor = 1.15, rounding = 1 + 1e-9;
  const size_t n = costs.size();
  const std::vector<double> sum = sumsOf(costs);
  std::vector<std::vector<double>> sent(parts, std::vector<double>(n, 0));
  for (size_t p = 1; p < parts; ++p)
    for (size_t j = p; j + (parts - p) <= n; ++j)
      sent[p][j] = sends(p, j);
  std::vector<size_t> found = balancedCuts(costs, parts);
  const auto sumOf = [&](const std::vector<size_t> &begins, size_t p) {
    return sum[p + 1 < parts ? begins[p + 1] : n] - sum[begins[p]];
  };
  const auto costOf = [&](const std::vector<size_t> &begins) {
    double all = 0, most = 0;
    for (size_t p = 0; p < parts; ++p) {
      const double one = sent[p][begins[p]];
      all += one;
      most = std::max({most, one / 2, sumOf(begins, p)});
    }
    return passes * most + all;
  };
  double least = costOf(found), limit = 0;
  for (size_t p = 0; p < parts; ++p)
    limit = std::max(limit, sumOf(found, p));
  // For each limit of the largest sum or message: the cuts with the fewest messages.
  for (; limit > 0 && passes * limit < least; limit *= factor) {
    std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, none));
    std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(n + 1, 0));
    best[0][0] = 0;
    for (size_t p = 1; p <= parts; ++p)
      for (size_t i = p; i <= n; ++i)
        for (size_t j = i; j-- > p - 1 && sum[i] - sum[j] <= limit * rounding;)
          if (const double all = best[p - 1][j] + sent[p - 1][j]; all < best[p][i] && sent[p - 1][j] <= 2 * limit)
            best[p][i] = all, from[p][i] = j;
    if (best[parts][n] == none)
      continue;
    std::vector<size_t> begins = beginsOf(from);
    if (const double cost = costOf(begins); cost < least)
      least = cost, found = std::move(begins);
  }
  return found;
}

std::vector<size_t> balancedCuts(const UnevenParts &parts) {
  constexpr double none = std::numeric_limits<double>::infinity();
  const size_t count = parts.kindOf.size(), n = parts.costs.front().size();
  std::vector<std::vector<double>> sums;
  for (const std::vector<double> &costs : parts.costs)
    sums.push_back(sumsOf(costs));
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
  return beginsOf(from);
}

} // namespace cleave::partitioner
