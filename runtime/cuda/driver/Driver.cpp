// Opens the driver and describes its errors.
#include "runtime/cuda/driver/Driver.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Library.h"

#include <fmt/format.h>

#include <cstdlib>

namespace cleave::cuda {

namespace {

// 1000 * major + 10 * minor. A driver cannot load cubins from a toolkit with a newer major version.
constexpr int oldestDriver = CUDA_VERSION / 1000 * 1000;

Driver bindAll(const Library &library) {
  Driver d{};
  library.bind(d.init, "cuInit");
  library.bind(d.driverGetVersion, "cuDriverGetVersion");
  library.bind(d.getErrorName, "cuGetErrorName");
  library.bind(d.getErrorString, "cuGetErrorString");
  library.bind(d.deviceGetCount, "cuDeviceGetCount");
  library.bind(d.deviceGet, "cuDeviceGet");
  library.bind(d.deviceGetName, "cuDeviceGetName");
  library.bind(d.deviceGetAttribute, "cuDeviceGetAttribute");
  library.bind(d.deviceTotalMem, "cuDeviceTotalMem_v2");
  library.bind(d.deviceGetPCIBusId, "cuDeviceGetPCIBusId");
  library.bind(d.deviceCanAccessPeer, "cuDeviceCanAccessPeer");
  library.bind(d.devicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  library.bind(d.devicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  library.bind(d.ctxSetCurrent, "cuCtxSetCurrent");
  library.bind(d.ctxSynchronize, "cuCtxSynchronize");
  library.bind(d.memGetInfo, "cuMemGetInfo_v2");
  library.bind(d.memAlloc, "cuMemAlloc_v2");
  library.bind(d.memFree, "cuMemFree_v2");
  library.bind(d.memHostAlloc, "cuMemHostAlloc");
  library.bind(d.memFreeHost, "cuMemFreeHost");
  library.bind(d.memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  library.bind(d.memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  library.bind(d.memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  library.bind(d.memsetD8Async, "cuMemsetD8Async");
  library.bind(d.memsetD16Async, "cuMemsetD16Async");
  library.bind(d.memsetD32Async, "cuMemsetD32Async");
  library.bind(d.streamCreateWithPriority, "cuStreamCreateWithPriority");
  library.bind(d.streamDestroy, "cuStreamDestroy_v2");
  library.bind(d.streamSynchronize, "cuStreamSynchronize");
  library.bind(d.streamWaitEvent, "cuStreamWaitEvent");
  library.bind(d.streamBeginCapture, "cuStreamBeginCapture_v2");
  library.bind(d.streamEndCapture, "cuStreamEndCapture");
  library.bind(d.eventCreate, "cuEventCreate");
  library.bind(d.eventDestroy, "cuEventDestroy_v2");
  library.bind(d.eventRecord, "cuEventRecord");
  library.bind(d.eventQuery, "cuEventQuery");
  library.bind(d.eventSynchronize, "cuEventSynchronize");
  library.bind(d.eventElapsedTime, "cuEventElapsedTime");
  library.bind(d.graphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
  library.bind(d.graphGetNodes, "cuGraphGetNodes");
  library.bind(d.graphLaunch, "cuGraphLaunch");
  library.bind(d.graphUpload, "cuGraphUpload");
  library.bind(d.graphDestroy, "cuGraphDestroy");
  library.bind(d.graphExecDestroy, "cuGraphExecDestroy");
  library.bind(d.moduleLoadData, "cuModuleLoadData");
  library.bind(d.moduleUnload, "cuModuleUnload");
  library.bind(d.moduleGetFunction, "cuModuleGetFunction");
  library.bind(d.launchKernel, "cuLaunchKernel");
  return d;
}

Driver openDriver() {
  const Library library = Library::open({"libcuda.so.1"});
  if (!library)
    throw userError(fmt::format("--backend cuda: no CUDA device: NVIDIA's driver is not installed: {}", library.why));
  const Driver d = bindAll(library);
  // More hardware queues than streams, so that no stream waits for another.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int version = 0, devices = 0;
  CUresult result = d.init(0);
  if (result == CUDA_SUCCESS)
    result = d.driverGetVersion(&version);
  if (result == CUDA_SUCCESS && version < oldestDriver)
    throw environmentError(fmt::format("--backend cuda: the driver must be for CUDA {}.{} or later, found {}.{}",
                                       oldestDriver / 1000, oldestDriver % 1000 / 10, version / 1000,
                                       version % 1000 / 10));
  if (result == CUDA_SUCCESS)
    result = d.deviceGetCount(&devices);
  if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && devices == 0))
    throw userError("--backend cuda: no CUDA device: the driver finds none");
  if (result != CUDA_SUCCESS)
    throw environmentError(
        fmt::format("--backend cuda: no CUDA device: the driver fails to start (error {})", static_cast<int>(result)));
  return d;
}

} // namespace

const Driver &driver() {
  static const Driver opened = openDriver(); // if this throws, the next call tries again
  return opened;
}

std::string describe(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (driver().getErrorName(result, &name) != CUDA_SUCCESS || !name)
    return fmt::format("error {}", static_cast<int>(result));
  driver().getErrorString(result, &text);
  return fmt::format("{} ({})", text ? text : "unknown error", name);
}

void check(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS)
    throw environmentError(fmt::format("cuda: {}: {}", what, describe(result)));
}

} // namespace cleave::cuda
