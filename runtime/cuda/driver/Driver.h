// The CUDA driver's functions, opened on first use and never linked: one binary works with and without CUDA, and a run
// on CPUs has no overhead. Only runtime/cuda includes CUDA's headers.
//
// Names and semantics are those of the CUDA driver API (CUDA Toolkit 13), without the prefix.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>

namespace cleave::cuda {

struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuDriverGetVersion) driverGetVersion;
  decltype(&::cuGetErrorName) getErrorName;
  decltype(&::cuGetErrorString) getErrorString;

  decltype(&::cuDeviceGetCount) deviceGetCount;
  decltype(&::cuDeviceGet) deviceGet;
  decltype(&::cuDeviceGetName) deviceGetName;
  decltype(&::cuDeviceGetAttribute) deviceGetAttribute;
  decltype(&::cuDeviceTotalMem) deviceTotalMem;
  decltype(&::cuDeviceGetPCIBusId) deviceGetPCIBusId;
  decltype(&::cuDeviceCanAccessPeer) deviceCanAccessPeer;
  decltype(&::cuDevicePrimaryCtxRetain) devicePrimaryCtxRetain;
  decltype(&::cuDevicePrimaryCtxRelease) devicePrimaryCtxRelease;
  decltype(&::cuCtxSetCurrent) ctxSetCurrent;
  decltype(&::cuCtxSynchronize) ctxSynchronize;

  decltype(&::cuMemGetInfo) memGetInfo;
  decltype(&::cuMemAlloc) memAlloc;
  decltype(&::cuMemFree) memFree;
  decltype(&::cuMemHostAlloc) memHostAlloc;
  decltype(&::cuMemFreeHost) memFreeHost;
  decltype(&::cuMemcpyHtoDAsync) memcpyHtoDAsync;
  decltype(&::cuMemcpyDtoHAsync) memcpyDtoHAsync;
  decltype(&::cuMemcpyDtoDAsync) memcpyDtoDAsync;
  decltype(&::cuMemsetD8Async) memsetD8Async;
  decltype(&::cuMemsetD16Async) memsetD16Async;
  decltype(&::cuMemsetD32Async) memsetD32Async;

  decltype(&::cuStreamCreateWithPriority) streamCreateWithPriority;
  decltype(&::cuStreamDestroy) streamDestroy;
  decltype(&::cuStreamSynchronize) streamSynchronize;
  decltype(&::cuStreamWaitEvent) streamWaitEvent;
  decltype(&::cuStreamBeginCapture) streamBeginCapture;
  decltype(&::cuStreamEndCapture) streamEndCapture;
  decltype(&::cuEventCreate) eventCreate;
  decltype(&::cuEventDestroy) eventDestroy;
  decltype(&::cuEventRecord) eventRecord;
  decltype(&::cuEventQuery) eventQuery;
  decltype(&::cuEventSynchronize) eventSynchronize;
  decltype(&::cuEventElapsedTime) eventElapsedTime;

  decltype(&::cuGraphInstantiateWithFlags) graphInstantiateWithFlags;
  decltype(&::cuGraphGetNodes) graphGetNodes;
  decltype(&::cuGraphLaunch) graphLaunch;
  decltype(&::cuGraphUpload) graphUpload;
  decltype(&::cuGraphDestroy) graphDestroy;
  decltype(&::cuGraphExecDestroy) graphExecDestroy;

  decltype(&::cuModuleLoadData) moduleLoadData;
  decltype(&::cuModuleUnload) moduleUnload;
  decltype(&::cuModuleGetFunction) moduleGetFunction;
  decltype(&::cuLaunchKernel) launchKernel;
};

/// The driver, opened and initialised once per process. Throws a user error if there is no driver or no device, because
/// --backend cuda is not possible; an environment error if the driver is too old or fails to start.
const Driver &driver();

/// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
std::string describe(CUresult result);

/// Throws an environment error "cuda: WHAT: ..." unless the result is success.
void check(CUresult result, const char *what);

/// Conversions between device pointers and addresses: device addresses are passed as std::byte *.
inline CUdeviceptr devicePointer(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }

} // namespace cleave::cuda
