// Names and texts of errors, and functions by name.
#include "tests/fake/cuda/World.h"

#include <dlfcn.h>

using namespace cleave::fake;

namespace {

struct Text {
  CUresult code;
  const char *name, *text;
};

#define CLEAVE_FAKE_ERROR(code, text)                                                                                  \
  { code, #code, text }
constexpr Text texts[] = {
    CLEAVE_FAKE_ERROR(CUDA_SUCCESS, "no error"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                      "the provided PTX was compiled with an unsupported toolchain."),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                      "part or all of the requested memory range is already mapped"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                      "pointer does not correspond to a registered memory region"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                      "operation would result in a merge of separate capture sequences"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                      "operation would make the legacy stream depend on a capturing blocking stream"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                      "operation not permitted on an event last recorded in a capturing stream"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                      "attempt to terminate a thread-local capture sequence from another thread"),
    CLEAVE_FAKE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const Text *textOf(CUresult code) {
  for (const Text &t : texts)
    if (t.code == code)
      return &t;
  return nullptr;
}

} // namespace

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text) {
  const Text *known = textOf(error);
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = known ? known->name : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text) {
  const Text *known = textOf(error);
  if (!text)
    return CUDA_ERROR_INVALID_VALUE;
  *text = known ? known->text : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status) {
  CLEAVE_FAKE_CALL(Nothing);
  if (!symbol || !function)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  Dl_info self{};
  dladdr(reinterpret_cast<void *>(&textOf), &self);
  void *handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  for (const char *suffix : {"_v4", "_v3", "_v2", ""})
    if (handle && !*function)
      *function = dlsym(handle, (std::string(symbol) + suffix).c_str());
  if (handle)
    dlclose(handle);
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
