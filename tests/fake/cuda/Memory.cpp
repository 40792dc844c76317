// Device memory is host memory, counted per device; new memory contains 0xff (NaN). A protected page follows each
// block, so an overrun ends the program.
#include "tests/fake/cuda/Capture.h"

#include <cstring>
#include <sys/mman.h>

using namespace cleave::fake;

namespace cleave::fake {

namespace {

constexpr size_t page = 4096, granule = 512;

size_t roundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

/// Maps memory such that the block ends at the protected page; null on failure.
void *mapBlock(Block &block, size_t rounded) {
  block.mapBytes = roundUp(rounded, page) + page;
  void *map = mmap(nullptr, block.mapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return nullptr;
  block.map = map;
  auto *end = static_cast<char *>(map) + block.mapBytes - page;
  mprotect(end, page, PROT_NONE);
  std::memset(map, 0xff, block.mapBytes - page);
  return end - rounded;
}

CUresult addBlock(World &w, CUcontext context, size_t bytes, int device, uintptr_t &address) {
  Block block{.bytes = bytes, .device = device, .context = context};
  void *at = mapBlock(block, roundUp(bytes, granule));
  if (!at)
    return CUDA_ERROR_OUT_OF_MEMORY;
  address = reinterpret_cast<uintptr_t>(at);
  w.memory[address] = block;
  return CUDA_SUCCESS;
}

CUresult removeBlock(Call &call, uintptr_t address, bool onDevice) {
  const auto found = call.w.memory.find(address);
  if (found == call.w.memory.end() || (found->second.device >= 0) != onDevice)
    return CUDA_ERROR_INVALID_VALUE;
  if (!found->second.map) // registered memory belongs to the caller
    return CUDA_ERROR_INVALID_VALUE;
  const Block block = found->second;
  awaitContext(call, block.context);
  if (onDevice)
    call.w.devices[static_cast<size_t>(block.device)].used -= roundUp(block.bytes, granule);
  races().forget(address, address + block.bytes);
  call.w.memory.erase(address);
  munmap(block.map, block.mapBytes);
  return block.context->error;
}

} // namespace

const Block *blockOf(const World &w, const void *begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  auto block = w.memory.upper_bound(at);
  if (block == w.memory.begin())
    return nullptr;
  --block;
  return at - block->first <= block->second.bytes && bytes <= block->second.bytes - (at - block->first) ? &block->second
                                                                                                        : nullptr;
}

} // namespace cleave::fake

CUresult CUDAAPI cuMemGetInfo(size_t *free, size_t *total) {
  CLEAVE_FAKE_CALL(Context);
  if (!free || !total)
    return CUDA_ERROR_INVALID_VALUE;
  *total = call.w.settings.memory;
  *free = *total - call.w.devices[static_cast<size_t>(call.context->device)].used;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *result, size_t bytes) {
  CLEAVE_FAKE_CALL(Context | Safe);
  if (!result || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Device &device = call.w.devices[static_cast<size_t>(call.context->device)];
  const size_t rounded = roundUp(bytes, granule);
  if (rounded < bytes || rounded > call.w.settings.memory - device.used)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uintptr_t address = 0;
  const CUresult made = addBlock(call.w, call.context, bytes, call.context->device, address);
  if (made == CUDA_SUCCESS) {
    device.used += rounded;
    *result = address;
  }
  return made;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  CLEAVE_FAKE_CALL(Context | Safe | Frees);
  return address ? removeBlock(call, address, true) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **result, size_t bytes, unsigned flags) {
  CLEAVE_FAKE_CALL(Context | Safe);
  const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!result || bytes == 0 || flags & ~known)
    return CUDA_ERROR_INVALID_VALUE;
  uintptr_t address = 0;
  const CUresult made = addBlock(call.w, call.context, bytes, -1, address);
  if (made == CUDA_SUCCESS)
    *result = reinterpret_cast<void *>(address);
  return made;
}

CUresult CUDAAPI cuMemAllocHost(void **result, size_t bytes) { return cuMemHostAlloc(result, bytes, 0); }

CUresult CUDAAPI cuMemFreeHost(void *address) {
  CLEAVE_FAKE_CALL(Context | Safe | Frees);
  return removeBlock(call, reinterpret_cast<uintptr_t>(address), false);
}

CUresult CUDAAPI cuMemHostRegister(void *address, size_t bytes, unsigned flags) {
  CLEAVE_FAKE_CALL(Context | Safe);
  if (!address || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (blockOf(call.w, address, 1))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  call.w.memory[reinterpret_cast<uintptr_t>(address)] = Block{.bytes = bytes, .context = call.context};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void *address) {
  CLEAVE_FAKE_CALL(Context | Safe);
  const auto found = call.w.memory.find(reinterpret_cast<uintptr_t>(address));
  if (found == call.w.memory.end() || found->second.map)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  awaitContext(call, found->second.context);
  call.w.memory.erase(reinterpret_cast<uintptr_t>(address));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CLEAVE_FAKE_CALL(Context);
  const Block *block = blockOf(call.w, reinterpret_cast<void *>(address), 1);
  if (!block || block->device < 0)
    return CUDA_ERROR_NOT_FOUND;
  if (base)
    *base = std::prev(call.w.memory.upper_bound(address))->first;
  if (bytes)
    *bytes = block->bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  CLEAVE_FAKE_CALL(Context);
  const Block *block = blockOf(call.w, reinterpret_cast<void *>(address), 1);
  if (!data || !block)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *static_cast<CUcontext *>(data) = block->context;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *static_cast<unsigned *>(data) = block->device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *static_cast<int *>(data) = block->context->device;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *static_cast<CUdeviceptr *>(data) = address;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *static_cast<CUdeviceptr *>(data) = std::prev(call.w.memory.upper_bound(address))->first;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *static_cast<size_t *>(data) = block->bytes;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}
