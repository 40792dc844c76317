// Copies and fills. Ranges outside one allocation are rejected immediately; memory freed before a graph runs is
// detected when it runs.
#include "tests/fake/cuda/Capture.h"

#include <cstring>

using namespace cleave::fake;

namespace cleave::fake {

namespace {

void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

bool onDevice(const World &w, const void *begin, size_t bytes) {
  const Block *block = blockOf(w, begin, bytes);
  return block && block->device >= 0;
}

bool pinned(const World &w, const void *begin, size_t bytes) {
  const Block *block = blockOf(w, begin, bytes);
  return block && block->device < 0;
}

/// Whether the memory is a valid host argument: not device memory.
bool hostMemory(const World &w, const void *begin, size_t bytes) {
  const Block *block = blockOf(w, begin, 1);
  return begin && (!block || (block->device < 0 && blockOf(w, begin, bytes)));
}

bool stillThere(const void *begin, size_t bytes) {
  std::unique_lock lock(world().lock);
  return blockOf(world(), begin, bytes) != nullptr;
}

Work copyWork(const char *name, void *to, const void *from, size_t bytes, bool toKnown, bool fromKnown) {
  Work work{name, nullptr, {}};
  work.run = [=] {
    if ((toKnown && !stillThere(to, bytes)) || (fromKnown && !stillThere(from, bytes)))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memmove(to, from, bytes);
    return CUDA_SUCCESS;
  };
  work.ranges = {range(from, bytes, false), range(to, bytes, true)};
  return work;
}

CUresult hostToDevice(Call &call, CUstream stream, void *to, const void *from, size_t bytes, const char *name) {
  if (pinned(call.w, from, bytes))
    return submit(call.w, stream, copyWork(name, to, from, bytes, true, true));
  if (stream->capture) // the graph would read the memory at an arbitrary later time
    return spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  auto staged =
      std::make_shared<std::vector<char>>(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
  Work work = copyWork(name, to, staged->data(), bytes, true, false);
  work.run = [run = work.run, staged] { return run(); };
  work.ranges = {range(to, bytes, true)};
  return submit(call.w, stream, std::move(work));
}

/// Waits for the work that this call put into the stream.
CUresult finish(Call &call, CUstream stream, CUresult result) {
  if (result != CUDA_SUCCESS)
    return result;
  const CUcontext context = stream->context;
  await(call, mark(call.w, stream));
  return context->error;
}

CUresult deviceToHost(Call &call, CUstream stream, void *to, const void *from, size_t bytes, const char *name) {
  const bool direct = pinned(call.w, to, bytes);
  if (!direct && stream->capture)
    return spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const CUresult result = submit(call.w, stream, copyWork(name, to, from, bytes, direct, true));
  return direct ? result : finish(call, stream, result); // unpinned memory is written before the call returns
}

template <typename T>
CUresult fill(Call &call, CUdeviceptr to, T value, size_t count, CUstream handle, const char *name) {
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (count == 0)
    return CUDA_SUCCESS;
  if (to % sizeof(T) || count > SIZE_MAX / sizeof(T) || !onDevice(call.w, pointer(to), count * sizeof(T)))
    return CUDA_ERROR_INVALID_VALUE;
  Work work{name, nullptr, {range(pointer(to), count * sizeof(T), true)}};
  work.run = [=] {
    if (!stillThere(pointer(to), count * sizeof(T)))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::fill_n(static_cast<T *>(pointer(to)), count, value);
    return CUDA_SUCCESS;
  };
  return submit(call.w, stream, std::move(work));
}

} // namespace
} // namespace cleave::fake

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!onDevice(call.w, pointer(to), bytes) || !hostMemory(call.w, from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return hostToDevice(call, stream, pointer(to), from, bytes, __func__);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!onDevice(call.w, pointer(from), bytes) || !hostMemory(call.w, to, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return deviceToHost(call, stream, to, pointer(from), bytes, __func__);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!onDevice(call.w, pointer(to), bytes) || !onDevice(call.w, pointer(from), bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return submit(call.w, stream, copyWork(__func__, pointer(to), pointer(from), bytes, true, true));
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  CLEAVE_FAKE_CALL(Context | Safe);
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!onDevice(call.w, pointer(to), bytes) || !hostMemory(call.w, from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const CUstream stream = call.context->legacy;
  return finish(call, stream, hostToDevice(call, stream, pointer(to), from, bytes, __func__));
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  CLEAVE_FAKE_CALL(Context | Safe);
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!onDevice(call.w, pointer(from), bytes) || !hostMemory(call.w, to, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const CUstream stream = call.context->legacy;
  return finish(call, stream, deviceToHost(call, stream, to, pointer(from), bytes, __func__));
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return cuMemcpyDtoDAsync(to, from, bytes, nullptr);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  CLEAVE_FAKE_CALL(Context);
  return fill(call, to, value, count, stream, __func__);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  CLEAVE_FAKE_CALL(Context);
  return fill(call, to, value, count, stream, __func__);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  CLEAVE_FAKE_CALL(Context);
  return fill(call, to, value, count, stream, __func__);
}
