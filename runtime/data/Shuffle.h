// The order of an epoch's samples: a permutation that depends only on the seed and the epoch, so it is the same for
// every mesh and rank.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cleave {

/// Fisher-Yates keyed by Philox(seed, epoch) over [0, count).
std::vector<uint32_t> shuffledOrder(int64_t count, uint64_t seed, int64_t epoch);

/// Caches the orders of the last two epochs; shared by the ranks of one process.
class SampleOrder {
public:
  SampleOrder(int64_t count, uint64_t seed) : count(count), seed(seed) {}
  std::shared_ptr<const std::vector<uint32_t>> of(int64_t epoch);

private:
  int64_t count;
  uint64_t seed;
  std::mutex mutex;
  struct Entry {
    int64_t epoch = -1;
    std::shared_ptr<const std::vector<uint32_t>> order;
  } recent[2];
  unsigned next = 0;
};

} // namespace cleave
