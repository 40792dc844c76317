// RAII objects of the CUDA driver.
#include "runtime/cuda/driver/Context.h"

#include "runtime/base/Error.h"

#include <fmt/format.h>

namespace cleave::cuda {

static int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().deviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

Context::Context(int ordinal) : number(ordinal) {
  int count = 0;
  check(driver().deviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count)
    throw userError(fmt::format("--backend cuda: device {} was asked for, the machine has {} (ranks that are processes "
                                "use the device of their LOCAL_RANK, ranks that are threads that of their rank; "
                                "processes can share one if each has its own NCCL_HOSTID)",
                                ordinal, count));
  check(driver().deviceGet(&device, ordinal), "cuDeviceGet");
  char text[256] = {};
  check(driver().deviceGetName(text, sizeof text - 1, device), "cuDeviceGetName");
  deviceName = text;
  sm = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
       attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  processors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  check(driver().devicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  makeCurrent();
}

Context::~Context() {
  if (context)
    driver().devicePrimaryCtxRelease(device);
}

void Context::makeCurrent() const { check(driver().ctxSetCurrent(context), "cuCtxSetCurrent"); }

size_t Context::freeBytes() const {
  size_t available = 0, total = 0;
  check(driver().memGetInfo(&available, &total), "cuMemGetInfo");
  return available;
}

size_t Context::totalBytes() const {
  size_t total = 0;
  check(driver().deviceTotalMem(&total, device), "cuDeviceTotalMem");
  return total;
}

DeviceMemory::DeviceMemory(size_t bytes, const char *what) : bytes(bytes) {
  if (bytes == 0)
    return;
  CUdeviceptr address = 0;
  if (const CUresult result = driver().memAlloc(&address, bytes); result != CUDA_SUCCESS)
    throw environmentError(fmt::format("cuda: no {} bytes of device memory for {}: {}", bytes, what, describe(result)));
  memory = Owned<CUdeviceptr, &Driver::memFree>(address);
}

DeviceMemory DeviceMemory::of(const void *data, size_t bytes, const char *what) {
  DeviceMemory memory(bytes, what);
  const Stream stream = Stream::make();
  if (bytes)
    check(driver().memcpyHtoDAsync(devicePointer(memory.data()), data, bytes, stream.get()), "cuMemcpyHtoDAsync");
  stream.synchronize();
  return memory;
}

PinnedMemory::PinnedMemory(size_t bytes, const char *what) : bytes(bytes) {
  if (bytes == 0)
    return;
  void *address = nullptr;
  if (const CUresult result = driver().memHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE); result != CUDA_SUCCESS)
    throw environmentError(fmt::format("cuda: no {} bytes of pinned memory for {}: {}", bytes, what, describe(result)));
  memory = Owned<void *, &Driver::memFreeHost>(address);
}

Stream Stream::make(bool urgent) {
  CUstream made = nullptr;
  // 0 is the lowest priority; lower numbers are more urgent. The driver clamps unsupported values.
  check(driver().streamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, urgent ? -1 : 0), "cuStreamCreate");
  Stream stream;
  stream.stream = Owned<CUstream, &Driver::streamDestroy>(made);
  return stream;
}

void Stream::synchronize() const { check(driver().streamSynchronize(stream.get()), "cuStreamSynchronize"); }

Event Event::make(bool timed) {
  CUevent made = nullptr;
  check(driver().eventCreate(&made, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  Event event;
  event.event = Owned<CUevent, &Driver::eventDestroy>(made);
  return event;
}

void Event::record(CUstream stream) const { check(driver().eventRecord(event.get(), stream), "cuEventRecord"); }

void Event::holdUp(CUstream stream) const {
  check(driver().streamWaitEvent(stream, event.get(), CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
}

bool Event::done() const {
  const CUresult result = driver().eventQuery(event.get());
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  check(result, "cuEventQuery");
  return true;
}

void Event::synchronize() const { check(driver().eventSynchronize(event.get()), "cuEventSynchronize"); }

double Event::millisecondsSince(const Event &begin) const {
  float milliseconds = 0;
  check(driver().eventElapsedTime(&milliseconds, begin.event.get(), event.get()), "cuEventElapsedTime");
  return milliseconds;
}

Module::Module(const void *image, const std::string &what) {
  CUmodule made = nullptr;
  if (const CUresult result = driver().moduleLoadData(&made, image); result != CUDA_SUCCESS)
    throw environmentError(fmt::format("cuda: {} cannot be loaded: {}", what, describe(result)));
  module = Owned<CUmodule, &Driver::moduleUnload>(made);
}

CUfunction Module::function(const std::string &name) const {
  CUfunction found = nullptr;
  if (const CUresult result = driver().moduleGetFunction(&found, module.get(), name.c_str()); result != CUDA_SUCCESS)
    throw environmentError(fmt::format("cuda: the code has no kernel '{}': {}", name, describe(result)));
  return found;
}

void Graph::launch(CUstream stream) const { check(driver().graphLaunch(exec.get(), stream), "cuGraphLaunch"); }

void Graph::begin(CUstream stream) {
  check(driver().streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
}

Graph Graph::end(CUstream stream) {
  CUgraph recorded = nullptr;
  check(driver().streamEndCapture(stream, &recorded), "cuStreamEndCapture");
  const Owned<CUgraph, &Driver::graphDestroy> guard(recorded);
  Graph graph;
  check(driver().graphGetNodes(recorded, nullptr, &graph.count), "cuGraphGetNodes");
  CUgraphExec made = nullptr;
  check(driver().graphInstantiateWithFlags(&made, recorded, 0), "cuGraphInstantiate");
  graph.exec = Owned<CUgraphExec, &Driver::graphExecDestroy>(made);
  check(driver().graphUpload(made, stream), "cuGraphUpload");
  return graph;
}

void Graph::abandon(CUstream stream) noexcept {
  CUgraph recorded = nullptr;
  driver().streamEndCapture(stream, &recorded);
  if (recorded)
    driver().graphDestroy(recorded);
}

} // namespace cleave::cuda
