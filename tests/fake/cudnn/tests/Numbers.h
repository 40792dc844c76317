// Tensors in host memory for the tests of the fake cuDNN.
#pragma once
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace cleave::test {

/// A tensor with any strides, 64-byte aligned; elements are addressed by their indices.
class Buffer {
public:
  Buffer(plan::DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides)
      : dtype(dtype), sizes(std::move(sizes)), strides(std::move(strides)) {
    int64_t last = 0;
    for (size_t d = 0; d < this->sizes.size(); ++d)
      last += (this->sizes[d] - 1) * this->strides[d];
    bytes.resize(static_cast<size_t>(last + 1) * dtypeSize(dtype) + 64);
  }

  void *data() const {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return reinterpret_cast<void *>((address + 63) / 64 * 64);
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes)
      n *= size;
    return n;
  }
  /// Element access by linear number in the order of the sizes.
  double get(int64_t index) const { return loadElement(data(), place(index), dtype); }
  void set(int64_t index, double value) { storeElement(data(), place(index), dtype, value); }
  double operator()(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return loadElement(data(), a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3], dtype);
  }

  plan::DType dtype;
  std::vector<int64_t> sizes, strides;

private:
  int64_t place(int64_t index) const {
    int64_t offset = 0;
    for (size_t d = sizes.size(); d-- > 0; index /= sizes[d])
      offset += index % sizes[d] * strides[d];
    return offset;
  }
  std::vector<std::byte> bytes;
};

/// Small whole numbers, so that sums are exact in any order.
inline void fillWhole(Buffer &buffer, uint64_t seed) {
  for (int64_t i = 0; i < buffer.count(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    buffer.set(i, static_cast<double>(seed >> 40) / (1 << 24) * 5 - 2.5 > 0 ? static_cast<double>((seed >> 33) % 3)
                                                                            : -static_cast<double>((seed >> 33) % 3));
  }
}

/// Numbers in [-1, 1).
inline void fillUniform(Buffer &buffer, uint64_t seed) {
  for (int64_t i = 0; i < buffer.count(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    buffer.set(i, static_cast<double>(seed >> 40) / (1 << 23) - 1);
  }
}

/// The value after storing it as `dtype`.
inline double stored(plan::DType dtype, double value) {
  alignas(8) std::byte memory[8];
  storeElement(memory, 0, dtype, value);
  return loadElement(memory, 0, dtype);
}

} // namespace cleave::test
