// Primary contexts. Releasing the last reference destroys everything created in the context.
#include "tests/fake/cuda/Capture.h"

#include <sys/mman.h>

using namespace cleave::fake;

namespace {

/// Frees a context's memory. Other objects stay, so that cleaveFakeLeaks() lists them.
void destroyMemory(Call &call, CUcontext context) {
  std::erase_if(call.w.memory, [&](const auto &entry) {
    if (entry.second.context != context || entry.second.device < 0)
      return false;
    munmap(entry.second.map, entry.second.mapBytes);
    return true;
  });
  call.w.devices[static_cast<size_t>(context->device)].used = 0;
}

CUresult release(Call &call, CUdevice device) {
  const CUcontext context = call.w.devices[static_cast<size_t>(device)].primary;
  if (!context || context->retained == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (context->retained == 1) {
    awaitContext(call, context);
    destroyMemory(call, context);
    context->error = CUDA_SUCCESS;
  }
  --context->retained;
  return CUDA_SUCCESS;
}

} // namespace

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *result, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (device < 0 || static_cast<size_t>(device) >= call.w.devices.size())
    return CUDA_ERROR_INVALID_DEVICE;
  if (!result)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext &primary = call.w.devices[static_cast<size_t>(device)].primary;
  if (!primary) {
    primary = new CUctx_st;
    primary->device = device;
    primary->legacy = makeStream(call.w, primary, 0, 0);
  }
  ++primary->retained;
  *result = primary;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (device < 0 || static_cast<size_t>(device) >= call.w.devices.size())
    return CUDA_ERROR_INVALID_DEVICE;
  return release(call, device);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  CLEAVE_FAKE_CALL(Started);
  if (context && context->retained == 0)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  currentContext() = context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context) {
  CLEAVE_FAKE_CALL(Started);
  if (!context)
    return CUDA_ERROR_INVALID_VALUE;
  *context = call.context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
  CLEAVE_FAKE_CALL(Context);
  if (!device)
    return CUDA_ERROR_INVALID_VALUE;
  *device = call.context->device;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  CLEAVE_FAKE_CALL(Context);
  if (least)
    *least = 0;
  if (greatest)
    *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  CLEAVE_FAKE_CALL(Context);
  if (const CUresult refused = refusedInCapture(call.w); refused != CUDA_SUCCESS)
    return refused;
  for (CUstream stream : call.w.streams)
    if (stream->context == call.context && stream->capture)
      return spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const CUcontext context = call.context;
  awaitContext(call, context);
  return context->error;
}
