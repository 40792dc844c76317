// The order of an epoch's samples: a permutation that depends only on the seed and the epoch, so it is the same for
// every mesh and rank.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cleave {

/// Fisher-Yates keyed by Philox(seed, epoch) over [0, count). `shards`: the first index of each shard; then whole
/// shards are permuted, and the samples within each window of shuffleWindow.
std::vector<uint32_t> shuffledOrder(int64_t count, uint64_t seed, int64_t epoch,
                                    const std::vector<int64_t> &shards = {});
/// Samples that are shuffled among each other where samples come in shards: about 1.8 GB of ImageNet's files.
constexpr int64_t shuffleWindow = 16'384;

/// Caches the orders of the last two epochs; shared by the ranks of one process.
class SampleOrder {
public:
  SampleOrder(int64_t count, uint64_t seed, std::vector<int64_t> shards = {})
      : count(count), seed(seed), shards(std::move(shards)) {}
  std::shared_ptr<const std::vector<uint32_t>> of(int64_t epoch);

private:
  int64_t count;
  uint64_t seed;
  std::vector<int64_t> shards;
  std::mutex mutex;
  struct Entry {
    int64_t epoch = -1;
    std::shared_ptr<const std::vector<uint32_t>> order;
  } recent[2];
  unsigned next = 0;
};

} // namespace cleave
