// Random numbers of a sample, for example for crops, flips and noise. The numbers depend only on the seed, the epoch
// and the sample: every rank, every worker thread and every resumed run draws the same ones. They come from Philox, a
// counter-based generator (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace cleave {

/// A sequence of random numbers. It is a uniform random bit generator, so it can be passed to std::shuffle. A copy
/// continues on its own from the same place.
class Random {
public:
  using result_type = uint32_t;

  Random(uint64_t seed, int64_t epoch, int64_t sample);

  /// 32 random bits.
  result_type operator()() {
    if (used == words.size())
      refill();
    return words[used++];
  }
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() {
    const uint64_t high = (*this)(), low = (*this)();
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  }
  /// Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// A whole number in [low, high), each with the same probability; `low` must be less than `high`.
  int64_t integer(int64_t low, int64_t high);
  /// Normally distributed.
  double normal(double mean = 0, double deviation = 1);
  /// True with this probability.
  bool chance(double probability) { return uniform() < probability; }

  /// Another generator of the same sample, independent of this one and of what was drawn from it. Use one for each
  /// field that needs numbers of its own: then a rank that does not read the field need not draw them.
  Random stream(uint64_t number) const;

private:
  Random(uint64_t key, uint64_t counter) : key(key), counter(counter) {}
  void refill();

  uint64_t key, counter; ///< of Philox; the block is the other half of its counter
  uint64_t block = 0;
  std::array<uint32_t, 4> words{};
  size_t used = 4;
};

} // namespace cleave
