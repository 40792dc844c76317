// Memory: what is counted, which calls are refused, and when copies read and write.
#include "tests/fake/tests/Support.h"

#include <atomic>
#include <cmath>

using namespace cleave::fake;

TEST_CASE("fake: device memory is counted, and holds nothing useful at first") {
  Gpu gpu;
  size_t before = 0, after = 0, total = 0;
  CHECK_CUDA(cuMemGetInfo(&before, &total));
  CHECK(total == 268435456);
  CHECK(before == total);
  {
    Array<float> array(1000);
    CHECK_CUDA(cuMemGetInfo(&after, &total));
    CHECK(before - after == 4096);
    CHECK(std::isnan(array.read()[999]));
    CHECK(array.at % 256 == 0);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CHECK_CUDA(cuMemGetAddressRange(&base, &bytes, array.at + 100));
    CHECK((base == array.at && bytes == 4000));
    unsigned kind = 0;
    CHECK_CUDA(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, array.at));
    CHECK(kind == CU_MEMORYTYPE_DEVICE);
  }
  CHECK_CUDA(cuMemGetInfo(&after, &total));
  CHECK(before == after);
  CUdeviceptr at = 0;
  CHECK(cuMemAlloc(&at, total + 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&at, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemAlloc(&at, total - 4096));
  CUdeviceptr more = 0;
  CHECK(cuMemAlloc(&more, 8192) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CUDA(cuMemFree(at));
  CHECK(cuMemFree(at) == CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemFree(0));
}

TEST_CASE("fake: copies stay inside allocations") {
  Gpu gpu;
  Stream stream;
  Array<int> a(16), b(16);
  int host[16] = {};
  CHECK(cuMemcpyHtoDAsync(a.at + 4, host, 64, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoHAsync(host, a.at, 65, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(host), a.at, 4, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoDAsync(a.at, b.data(), 4, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32Async(a.at + 2, 0, 1, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD16Async(a.at, 0, 33, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemsetD16Async(a.at, 0x0102, 32, stream));
  CHECK_CUDA(cuMemsetD8Async(b.at, 7, 64, stream));
  stream.wait();
  CHECK(a.read()[15] == 0x01020102);
  CHECK(b.read()[0] == 0x07070707);
}

TEST_CASE("fake: pinned memory is read when the copy runs, other memory when it is called") {
  Gpu gpu;
  Stream stream;
  Gate gate;
  Pinned<int> pinned(4);
  int pageable[4] = {1, 1, 1, 1};
  std::fill_n(pinned.at, 4, 1);
  Array<int> a(4), b(4);
  Gate::put(stream, gate);
  CHECK_CUDA(cuMemcpyHtoDAsync(a.at, pinned.at, 16, stream));
  CHECK_CUDA(cuMemcpyHtoDAsync(b.at, pageable, 16, stream));
  std::fill_n(pinned.at, 4, 2);
  std::fill_n(pageable, 4, 2);
  std::atomic_ref(gate.open) = true;
  stream.wait();
  CHECK(a.read()[0] == 2);
  CHECK(b.read()[0] == 1);
  CHECK_CUDA(cuMemcpyDtoHAsync(pageable, b.at, 16, stream)); // complete when the call returns
  CHECK(pageable[3] == 1);
  CHECK(cuMemcpyHtoDAsync(a.at, pinned.at + 1, 16, stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("fake: a primary context that nobody retains is gone, with its memory") {
  cleaveFakeReset();
  REQUIRE_CUDA(cuInit(0));
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  size_t free = 0, total = 0;
  CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 1));
  CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 1));
  CHECK_CUDA(cuCtxSetCurrent(context));
  CHECK_CUDA(cuMemAlloc(&at, 1 << 20));
  CHECK_CUDA(cuDevicePrimaryCtxRelease(1));
  CHECK_CUDA(cuMemGetInfo(&free, &total));
  CHECK(free < total);
  CHECK_CUDA(cuDevicePrimaryCtxRelease(1));
  CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuMemGetInfo(&free, &total) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 1));
  CHECK_CUDA(cuMemGetInfo(&free, &total));
  CHECK(free == total);
  CHECK_CUDA(cuDevicePrimaryCtxRelease(1));
  CHECK_CUDA(cuCtxSetCurrent(nullptr));
}

TEST_CASE("fake: devices say what the settings say") {
  Gpu gpu;
  int value = 0;
  char text[64];
  CHECK_CUDA(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  CHECK(value == 9);
  CHECK_CUDA(cuDeviceGetPCIBusId(text, sizeof text, 2));
  CHECK(std::string(text) == "0000:03:00.0");
  CHECK_CUDA(cuDeviceGetByPCIBusId(&value, text));
  CHECK(value == 2);
  CHECK_CUDA(cuDeviceCanAccessPeer(&value, 0, 1));
  CHECK(value == 1);
  CHECK_CUDA(cuDeviceGetName(text, sizeof text, 0));
  CHECK(std::string(text) == "Cleave fake GPU");
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetName(text, sizeof text, 9) == CUDA_ERROR_INVALID_DEVICE);
}
