// Shuffles by counter-based random numbers.
#include "runtime/data/Shuffle.h"
#include "runtime/device/Philox.h"

#include <numeric>
#include <utility>

namespace cleave {

std::vector<uint32_t> shuffledOrder(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t key = seed ^ fnv1a64("cleave.data.order");
  for (uint64_t i = uint64_t(count); i-- > 1;) {
    const PhiloxBlock words = philoxBlock(key, uint64_t(epoch), i);
    // Scales 64 random bits to [0, i]; the bias is below 2^-32.
    const uint64_t bits = uint64_t(words[1]) << 32 | words[0];
    const auto j = uint64_t((static_cast<unsigned __int128>(bits) * (i + 1)) >> 64);
    std::swap(order[i], order[j]);
  }
  return order;
}

std::shared_ptr<const std::vector<uint32_t>> SampleOrder::of(int64_t epoch) {
  std::lock_guard lock(mutex);
  for (const Entry &entry : recent)
    if (entry.epoch == epoch)
      return entry.order;
  Entry &entry = recent[next];
  next = 1 - next;
  entry = {epoch, std::make_shared<const std::vector<uint32_t>>(shuffledOrder(count, seed, epoch))};
  return entry.order;
}

} // namespace cleave
