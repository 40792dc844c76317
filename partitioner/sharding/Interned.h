// A list in which equal values are kept once.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace cleave::partitioner {

/// Values by index; equal values share one index, so that comparing indices compares values.
template <typename T, typename Hash> class Interned {
public:
  Interned() = default;
  Interned(Interned &&) = default;
  Interned &operator=(Interned &&) = default;

  int32_t add(T value) {
    const auto [entry, fresh] = indices.try_emplace(std::move(value), static_cast<int32_t>(values.size()));
    if (fresh)
      values.push_back(&entry->first);
    return entry->second;
  }
  const T &operator[](int32_t index) const { return *values[index]; }
  size_t size() const { return values.size(); }

private:
  std::unordered_map<T, int32_t, Hash> indices;
  std::vector<const T *> values; // keys of the map, which do not move
};

} // namespace cleave::partitioner
