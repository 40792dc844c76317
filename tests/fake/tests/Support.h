// Helpers for tests of the fakes: a device, streams, memory, gates.
#pragma once
#include "tests/fake/cuda/Fake.h"

#include <catch2/catch.hpp>
#include <cuda.h>

#include <cstring>
#include <string>
#include <vector>

namespace cleave::fake {

#define CHECK_CUDA(call) CHECK((call) == CUDA_SUCCESS)
#define REQUIRE_CUDA(call) REQUIRE((call) == CUDA_SUCCESS)

/// A device whose context is current during a test. The destructor checks that no object is left.
struct Gpu {
  explicit Gpu(const char *settings = "shuffle=0,race=0") {
    cleaveFakeReset();
    cleaveFakeSet(settings);
    REQUIRE_CUDA(cuInit(0));
    REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    REQUIRE_CUDA(cuCtxSetCurrent(context));
  }
  ~Gpu() {
    CHECK(std::string(cleaveFakeLeaksText()) == "");
    CHECK(cleaveFakeLeaks() == 0);
    cuDevicePrimaryCtxRelease(0);
    cuCtxSetCurrent(nullptr);
    cleaveFakeSet("shuffle=0,race=0");
    cleaveFakeReset();
  }
  CUcontext context = nullptr;
};

struct Stream {
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    REQUIRE_CUDA(cuStreamCreateWithPriority(&handle, flags, 0));
  }
  ~Stream() { cuStreamDestroy(handle); }
  Stream(const Stream &) = delete;
  operator CUstream() const { return handle; }
  void wait() const { REQUIRE_CUDA(cuStreamSynchronize(handle)); }
  CUstream handle = nullptr;
};

struct Event {
  explicit Event(unsigned flags = CU_EVENT_DEFAULT) { REQUIRE_CUDA(cuEventCreate(&handle, flags)); }
  ~Event() { cuEventDestroy(handle); }
  Event(const Event &) = delete;
  operator CUevent() const { return handle; }
  CUevent handle = nullptr;
};

/// An array on the device.
template <typename T> struct Array {
  explicit Array(size_t count) : count(count) { REQUIRE_CUDA(cuMemAlloc(&at, count * sizeof(T))); }
  explicit Array(const std::vector<T> &values) : Array(values.size()) {
    REQUIRE_CUDA(cuMemcpyHtoD(at, values.data(), count * sizeof(T)));
  }
  ~Array() { cuMemFree(at); }
  Array(const Array &) = delete;
  std::vector<T> read() const {
    std::vector<T> values(count);
    REQUIRE_CUDA(cuMemcpyDtoH(values.data(), at, count * sizeof(T)));
    return values;
  }
  T *data() const { return reinterpret_cast<T *>(at); }
  CUdeviceptr at = 0;
  size_t count;
};

/// Pinned memory.
template <typename T> struct Pinned {
  explicit Pinned(size_t count) : count(count) {
    REQUIRE_CUDA(cuMemHostAlloc(reinterpret_cast<void **>(&at), count * sizeof(T), 0));
  }
  ~Pinned() { cuMemFreeHost(at); }
  Pinned(const Pinned &) = delete;
  T *at = nullptr;
  size_t count;
};

/// Blocks a stream until the gate is opened.
struct Gate {
  bool open = false;
  static void wait(void *gate);
  static void unlock(void *gate);
  /// From here on `stream` runs after the current work of `first`, without any CUDA call that orders them.
  void order(CUstream first, CUstream stream) {
    REQUIRE(cleaveFakeEnqueue(first, unlock, this) == 0);
    put(stream, *this);
  }
  static void put(CUstream stream, Gate &gate) { REQUIRE(cleaveFakeEnqueue(stream, wait, &gate) == 0); }
};

/// A list of numbers; `put` enqueues work that appends a number.
struct Log {
  std::vector<int> numbers;
  void put(CUstream stream, int number);
};

} // namespace cleave::fake
