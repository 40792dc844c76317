// Devices and their primary contexts.
#include "tests/fake/cuda/Stream.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

using namespace cleave::fake;

namespace {

/// Physical numbers of the visible devices. Here CUDA_VISIBLE_DEVICES is a list of numbers only.
std::vector<int> visible(int physical) {
  std::vector<int> devices;
  const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < physical; ++i)
      devices.push_back(i);
    return devices;
  }
  std::stringstream all(text);
  for (std::string one; std::getline(all, one, ',');) {
    char *end = nullptr;
    const long number = std::strtol(one.c_str(), &end, 10);
    if (end == one.c_str() || number < 0 || number >= physical) // the first invalid entry ends the list
      break;
    devices.push_back(static_cast<int>(number));
  }
  return devices;
}

std::vector<int> &physicalNumbers() {
  static auto *numbers = new std::vector<int>;
  return *numbers;
}

bool isDevice(const World &w, CUdevice device) { return device >= 0 && static_cast<size_t>(device) < w.devices.size(); }

int attributeOf(const Settings &s, CUdevice_attribute attribute, int physical) {
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    return s.sm / 10;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    return s.sm % 10;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    return s.processors;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
    return 1024;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
    return 64;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    return 2147483647;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
    return 65535;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    return 32;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
    return 2048;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
    return 49152;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    return 232448;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
    return 233472;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
    return 65536;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    return 1980000;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
    return 2619000;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
    return 5120;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
    return 52428800;
  case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    return 3;
  case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    return physical + 1;
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
  case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
  case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
  case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
  case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    return 1;
  default:
    return 0;
  }
}

} // namespace

CUresult CUDAAPI cuInit(unsigned flags) {
  CLEAVE_FAKE_CALL(Nothing);
  if (flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (!call.w.started) {
    physicalNumbers() = visible(call.w.settings.devices);
    call.w.devices.resize(physicalNumbers().size());
  }
  if (call.w.devices.empty())
    return CUDA_ERROR_NO_DEVICE;
  call.w.started = true;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *version) {
  CLEAVE_FAKE_CALL(Nothing);
  if (!version)
    return CUDA_ERROR_INVALID_VALUE;
  *version = call.w.settings.driver;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count) {
  CLEAVE_FAKE_CALL(Started);
  if (!count)
    return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(call.w.devices.size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
  CLEAVE_FAKE_CALL(Started);
  if (!device)
    return CUDA_ERROR_INVALID_VALUE;
  if (!isDevice(call.w, ordinal))
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!name || length <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(length), "%s", call.w.settings.name.c_str());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  *value = attributeOf(call.w.settings, attribute, physicalNumbers()[static_cast<size_t>(device)]);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  const CUresult result = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  return result != CUDA_SUCCESS ? result
                                : cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *bytes = call.w.settings.memory;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!id || length < 13)
    return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", physicalNumbers()[static_cast<size_t>(device)] + 1);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
  CLEAVE_FAKE_CALL(Started);
  unsigned domain = 0, bus = 0, slot = 0;
  if (!device || !id || std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < call.w.devices.size(); ++i)
    if (domain == 0 && slot == 0 && static_cast<unsigned>(physicalNumbers()[i]) + 1 == bus) {
      *device = static_cast<CUdevice>(i);
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!uuid)
    return CUDA_ERROR_INVALID_VALUE;
  std::memset(uuid->bytes, 0xfa, sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(physicalNumbers()[static_cast<size_t>(device)]);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  CLEAVE_FAKE_CALL(Started);
  if (!isDevice(call.w, device) || !isDevice(call.w, peer))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!can)
    return CUDA_ERROR_INVALID_VALUE;
  *can = call.w.settings.peer && device != peer;
  return CUDA_SUCCESS;
}
