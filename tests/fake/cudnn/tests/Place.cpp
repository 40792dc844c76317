// Implements both places of Place.h.
#include "tests/fake/cudnn/tests/Place.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Driver.h"

#include <cstdio>
#include <vector>

namespace cleave::test {

namespace {

constexpr size_t limit = size_t{1} << 24;

class Heap final : public Place {
public:
  CUstream stream() override { return nullptr; }
  void *memory(size_t) override {
    return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(bytes.data()) + 255) / 256 * 256);
  }
  void finish() override {}
  void replay(unsigned times, const std::function<void()> &work) override {
    for (unsigned i = 0; i < times; ++i)
      work();
  }
  bool hasDriver() const override { return false; }

private:
  std::vector<std::byte> bytes = std::vector<std::byte>(limit);
};

class FakeDevice final : public Place {
public:
  FakeDevice() : d(cuda::driver()) {
    CUcontext context;
    cuda::check(d.devicePrimaryCtxRetain(&context, 0), "context");
    cuda::check(d.ctxSetCurrent(context), "context");
    cuda::check(d.streamCreateWithPriority(&lane, CU_STREAM_NON_BLOCKING, 0), "stream");
    cuda::check(d.memAlloc(&bytes, limit), "memory");
  }
  CUstream stream() override { return lane; }
  void *memory(size_t) override { return reinterpret_cast<void *>(bytes); }
  void finish() override { cuda::check(d.streamSynchronize(lane), "stream"); }
  void replay(unsigned times, const std::function<void()> &work) override {
    CUgraph graph = nullptr;
    CUgraphExec launched = nullptr;
    cuda::check(d.streamBeginCapture(lane, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    work();
    cuda::check(d.streamEndCapture(lane, &graph), "capture");
    cuda::check(d.graphInstantiateWithFlags(&launched, graph, 0), "graph");
    for (unsigned i = 0; i < times; ++i)
      cuda::check(d.graphLaunch(launched, lane), "graph");
    finish();
    cuda::check(d.graphExecDestroy(launched), "graph");
    cuda::check(d.graphDestroy(graph), "graph");
  }
  bool hasDriver() const override { return true; }

private:
  const cuda::Driver &d;
  CUstream lane = nullptr;
  CUdeviceptr bytes = 0;
};

} // namespace

Place &place() {
  static Place &found = []() -> Place & {
    try {
      static FakeDevice device;
      return device;
    } catch (const Error &e) {
      std::printf("without a driver: %s\n", e.what());
      static Heap heap;
      return heap;
    }
  }();
  return found;
}

} // namespace cleave::test
