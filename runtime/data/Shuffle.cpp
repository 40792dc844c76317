// Shuffles by counter-based random numbers.
#include "runtime/data/Shuffle.h"
#include "runtime/device/Philox.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace cleave {

/// Permutes `entries`. Draws at the counters from `first` on.
static void shuffle(std::span<uint32_t> entries, uint64_t key, int64_t epoch, uint64_t first = 0) {
  for (uint64_t i = entries.size(); i-- > 1;) {
    const PhiloxBlock words = philoxBlock(key, uint64_t(epoch), first + i);
    // Scales 64 random bits to [0, i]; the bias is below 2^-32.
    const uint64_t bits = uint64_t(words[1]) << 32 | words[0];
    const auto j = uint64_t((static_cast<unsigned __int128>(bits) * (i + 1)) >> 64);
    std::swap(entries[i], entries[j]);
  }
}

std::vector<uint32_t> shuffledOrder(int64_t count, uint64_t seed, int64_t epoch, const std::vector<int64_t> &shards) {
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t key = seed ^ fnv1a64("cleave.data.order");
  if (shards.empty()) {
    shuffle(order, key, epoch);
    return order;
  }
  std::vector<uint32_t> permuted(shards.size());
  std::iota(permuted.begin(), permuted.end(), 0u);
  shuffle(permuted, seed ^ fnv1a64("cleave.data.shards"), epoch);
  auto next = order.begin();
  for (const uint32_t shard : permuted) {
    const int64_t end = shard + size_t{1} < shards.size() ? shards[shard + 1] : count;
    for (int64_t i = shards[shard]; i < end; ++i)
      *next++ = static_cast<uint32_t>(i);
  }
  const std::span<uint32_t> all(order);
  for (size_t begin = 0; begin < all.size(); begin += shuffleWindow)
    shuffle(all.subspan(begin, std::min<size_t>(shuffleWindow, all.size() - begin)), key, epoch, begin);
  return order;
}

std::shared_ptr<const std::vector<uint32_t>> SampleOrder::of(int64_t epoch) {
  std::lock_guard lock(mutex);
  for (const Entry &entry : recent)
    if (entry.epoch == epoch)
      return entry.order;
  Entry &entry = recent[next];
  next = 1 - next;
  entry = {epoch, std::make_shared<const std::vector<uint32_t>>(shuffledOrder(count, seed, epoch, shards))};
  return entry.order;
}

} // namespace cleave
