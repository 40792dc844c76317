// Portable random numbers: splitmix64 (Steele, Lea and Flood 2014), without the standard library's distributions, whose
// results differ between implementations.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace cleave::random_models {

inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline uint64_t hashOf(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return h;
}

class Chance {
public:
  explicit Chance(uint64_t seed) : state(mix(seed)) {}
  uint64_t bits() { return mix(state++); }
  /// A random integer in [low, high].
  int64_t whole(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  /// A random number in [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  bool one(double probability) { return unit() < probability; }
  template <class T> const T &of(const std::vector<T> &list) {
    return list[static_cast<size_t>(whole(0, static_cast<int64_t>(list.size()) - 1))];
  }
  /// A random index into `weights`; its probability is proportional to its weight.
  size_t weighted(const std::vector<double> &weights) {
    double sum = 0;
    for (double w : weights)
      sum += w;
    double at = unit() * sum;
    for (size_t i = 0; i < weights.size(); ++i)
      if ((at -= weights[i]) < 0)
        return i;
    return weights.size() - 1;
  }

private:
  uint64_t state;
};

} // namespace cleave::random_models
