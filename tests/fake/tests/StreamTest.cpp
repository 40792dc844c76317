// Order within and between streams, events, and the order as the host sees it.
#include "tests/fake/tests/Support.h"

#include <atomic>

using namespace cleave::fake;

TEST_CASE("fake: a stream runs its work in order, and not when it is put there") {
  Gpu gpu("shuffle=7");
  Stream stream;
  Gate gate;
  Log log;
  Gate::put(stream, gate);
  for (int i = 0; i < 100; ++i)
    log.put(stream, i);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CHECK(log.numbers.empty());
  std::atomic_ref(gate.open) = true;
  stream.wait();
  REQUIRE(log.numbers.size() == 100);
  for (int i = 0; i < 100; ++i)
    CHECK(log.numbers[static_cast<size_t>(i)] == i);
  CHECK_CUDA(cuStreamQuery(stream));
}

TEST_CASE("fake: a stream that waits for an event runs after what was recorded when it began to wait") {
  Gpu gpu("shuffle=3");
  Stream first, second;
  Event event;
  Gate early, late;
  Log log;
  Gate::put(first, early);
  log.put(first, 1);
  CHECK_CUDA(cuEventRecord(event, first));
  CHECK_CUDA(cuStreamWaitEvent(second, event, 0));
  Gate::put(first, late);
  CHECK_CUDA(cuEventRecord(event, first)); // later: `second` does not wait for this
  log.put(second, 2);
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  std::atomic_ref(early.open) = true;
  second.wait();
  CHECK(log.numbers == std::vector<int>{1, 2});
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  std::atomic_ref(late.open) = true;
  CHECK_CUDA(cuEventSynchronize(event));
  CHECK_CUDA(cuEventQuery(event));
}

TEST_CASE("fake: an event that was never recorded is no obstacle") {
  Gpu gpu;
  Stream stream;
  Event event, untimed(CU_EVENT_DISABLE_TIMING);
  CHECK_CUDA(cuEventQuery(event));
  CHECK_CUDA(cuEventSynchronize(event));
  CHECK_CUDA(cuStreamWaitEvent(stream, event, 0));
  float ms = 0;
  CHECK(cuEventElapsedTime(&ms, event, event) == CUDA_ERROR_INVALID_HANDLE);
  CHECK_CUDA(cuEventRecord(event, stream));
  CHECK_CUDA(cuEventRecord(untimed, stream));
  stream.wait();
  CHECK_CUDA(cuEventElapsedTime(&ms, event, event));
  CHECK(cuEventElapsedTime(&ms, event, untimed) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("fake: the null stream runs after and before streams that are not NON_BLOCKING") {
  Gpu gpu("shuffle=5");
  Stream blocking(CU_STREAM_DEFAULT), free;
  Gate gate, other;
  Log log;
  Gate::put(blocking, gate);
  Gate::put(free, other);
  log.put(blocking, 1);
  log.put(nullptr, 2);
  log.put(blocking, 3);
  std::atomic_ref(gate.open) = true;
  blocking.wait();
  CHECK(log.numbers == std::vector<int>{1, 2, 3});
  std::atomic_ref(other.open) = true;
  CHECK_CUDA(cuCtxSynchronize());
}

TEST_CASE("fake: handles that are none, and objects of another device") {
  Gpu gpu;
  CUcontext other = nullptr;
  int devices = 0;
  CHECK_CUDA(cuDeviceGetCount(&devices));
  REQUIRE(devices == 4); // by CLEAVE_FAKE_CUDA of this program
  CHECK(cuDeviceGet(&devices, 4) == CUDA_ERROR_INVALID_DEVICE);
  Stream stream;
  Event event;
  CUstream gone = nullptr;
  CHECK_CUDA(cuStreamCreateWithPriority(&gone, CU_STREAM_NON_BLOCKING, 0));
  CHECK_CUDA(cuStreamDestroy(gone));
  CHECK(cuStreamDestroy(gone) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventRecord(event, gone) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuStreamCreateWithPriority(&gone, 77, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CUDA(cuDevicePrimaryCtxRetain(&other, 1));
  CHECK_CUDA(cuCtxSetCurrent(other));
  {
    Stream there;
    CHECK(cuEventRecord(event, there) == CUDA_ERROR_INVALID_HANDLE);
    CHECK_CUDA(cuEventRecord(event, stream));
    CHECK_CUDA(cuStreamWaitEvent(there, event, 0)); // wait across devices
    there.wait();
  }
  CHECK_CUDA(cuDevicePrimaryCtxRelease(1));
  CHECK(cuCtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK_CUDA(cuCtxSetCurrent(nullptr));
  CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_CUDA(cuCtxSetCurrent(gpu.context));
}

TEST_CASE("fake: copies that nothing orders are races") {
  Gpu gpu("race=1");
  Stream first, second;
  Event event;
  Array<int> from(64), to(64);
  CHECK_CUDA(cuMemsetD32Async(from.at, 1, 64, first));
  CHECK_CUDA(cuEventRecord(event, first));
  CHECK_CUDA(cuStreamWaitEvent(second, event, 0));
  CHECK_CUDA(cuMemcpyDtoDAsync(to.at, from.at, 256, second));
  CHECK_CUDA(cuMemcpyDtoDAsync(to.at, from.at, 256, second));
  CHECK(cleaveFakeRaces() == 0);
  Gate gate;
  gate.order(second, first);                           // an order that CUDA does not know about
  CHECK_CUDA(cuMemsetD32Async(from.at, 2, 64, first)); // `second` may still read `from`
  CHECK(cleaveFakeRaces() == 1);
  CHECK(std::string(cleaveFakeRaceText()).find("cuMemsetD32Async") != std::string::npos);
  first.wait();
  second.wait();
  CHECK_CUDA(cuMemsetD32Async(to.at, 2, 64, first)); // the host has waited
  CHECK_CUDA(cuMemsetD32Async(from.at + 128, 2, 32, second));
  CHECK_CUDA(cuMemsetD32Async(from.at, 2, 32, first)); // other bytes
  CHECK(cleaveFakeRaces() == 1);
}

TEST_CASE("fake: what fails in a stream is the error of every later call") {
  Gpu gpu;
  Stream stream;
  Event event;
  cleaveFakeFail("work", 3, CUDA_ERROR_LAUNCH_FAILED);
  Log log;
  Gate gate;
  Gate::put(stream, gate);
  for (int i = 0; i < 3; ++i)
    log.put(stream, i);
  std::atomic_ref(gate.open) = true;
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(log.numbers == std::vector<int>{0});
  CUdeviceptr at = 0;
  CHECK(cuMemAlloc(&at, 16) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuEventRecord(event, stream) == CUDA_ERROR_LAUNCH_FAILED);
  cleaveFakeReset();
  CHECK_CUDA(cuStreamSynchronize(stream));
}

TEST_CASE("fake: calls that fail when a test wants it, and how often there were any") {
  Gpu gpu;
  CUdeviceptr at = 0;
  cleaveFakeFail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t before = cleaveFakeCalls("cuMemAlloc_v2");
  CHECK_CUDA(cuMemAlloc(&at, 16));
  CHECK_CUDA(cuMemFree(at));
  CHECK(cuMemAlloc(&at, 16) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CUDA(cuMemAlloc(&at, 16));
  CHECK(cleaveFakeLeaks() == 1);
  CHECK(std::string(cleaveFakeLeaksText()).find("device memory") != std::string::npos);
  CHECK_CUDA(cuMemFree(at));
  CHECK(cleaveFakeCalls("cuMemAlloc_v2") == before + 3);
  const char *name = nullptr;
  CHECK_CUDA(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
  CHECK(std::string(name) == "CUDA_ERROR_OUT_OF_MEMORY");
  void *function = nullptr;
  CHECK_CUDA(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, nullptr));
  CHECK(function == reinterpret_cast<void *>(&cuMemAlloc));
}
