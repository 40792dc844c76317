// The generator of a sample. A Philox block of (seed, epoch, sample) gives the key and half of the counter of the
// sample's own blocks.
#include "cleave/Random.h"
#include "runtime/device/Philox.h"

#include <cassert>
#include <cmath>

namespace cleave {

static uint64_t joined(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

Random::Random(uint64_t seed, int64_t epoch, int64_t sample) {
  const PhiloxBlock own =
      philoxBlock(seed ^ fnv1a64("cleave.data.sample"), static_cast<uint64_t>(epoch), static_cast<uint64_t>(sample));
  key = joined(own[1], own[0]);
  counter = joined(own[3], own[2]);
}

Random Random::stream(uint64_t number) const {
  const PhiloxBlock own = philoxBlock(key ^ fnv1a64("cleave.data.stream"), counter, number);
  return {joined(own[1], own[0]), joined(own[3], own[2])};
}

void Random::refill() {
  words = philoxBlock(key, counter, block++);
  used = 0;
}

int64_t Random::integer(int64_t low, int64_t high) {
  assert(low < high && "an integer is drawn from a range that has one");
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const uint64_t uneven = (0 - range) % range; // so many of the products would make some numbers likelier (Lemire 2019)
  for (;;) {
    const uint64_t upper = (*this)(), bits = upper << 32 | (*this)();
    const auto product = static_cast<unsigned __int128>(bits) * range;
    if (static_cast<uint64_t>(product) >= uneven)
      return static_cast<int64_t>(static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64));
  }
}

double Random::normal(double mean, double deviation) { // Box-Muller; the second number is not kept
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return mean + deviation * radius * std::cos(2 * 3.14159265358979323846 * uniform());
}

} // namespace cleave
