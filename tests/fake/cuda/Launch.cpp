// Launches. Parameters are copied when the kernel is launched.
#include "tests/fake/cuda/Module.h"

#include "tests/fake/cuda/Capture.h"

#include <cstring>

using namespace cleave::fake;

namespace {

constexpr unsigned mostThreads = 1024, mostSharedBytes = 48 << 10, mostSharedOptIn = 227 << 10;

/// Whether every buffer is in device memory, in pinned memory, or null.
bool reachable(const std::vector<void *> &buffers) {
  std::unique_lock lock(world().lock);
  for (const void *buffer : buffers)
    if (buffer && !blockOf(world(), buffer, 0))
      return false;
  return true;
}

struct Launched {
  CUfunc_st function; ///< a copy: a graph may outlive the module
  std::shared_ptr<void> library;
  Shape shape{};
  std::vector<std::vector<std::byte>> parameters;

  CUresult run() {
    std::vector<void *> addresses;
    for (auto &parameter : parameters)
      addresses.push_back(parameter.data());
    if (function.host) {
      using Entry = int (*)(void **, const unsigned *, const unsigned *);
      return static_cast<CUresult>(reinterpret_cast<Entry>(function.entry)(addresses.data(), shape.grid, shape.block));
    }
    std::vector<int64_t> words(parameters.size());
    for (size_t i = 0; i < words.size(); ++i)
      std::memcpy(&words[i], parameters[i].data(), sizeof words[i]);
    std::vector<void *> buffers;
    for (size_t i = 0; i < function.buffers; ++i)
      buffers.push_back(reinterpret_cast<void *>(words[i]));
    if (!reachable(buffers))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    return runEmulated(function, shape, buffers.data(), words.data() + function.buffers, words.back());
  }
};

bool validShape(const Shape &s) {
  for (int i = 0; i < 3; ++i)
    if (s.grid[i] == 0 || s.block[i] == 0)
      return false;
  return s.grid[0] <= 0x7fffffff && s.grid[1] <= 65535 && s.grid[2] <= 65535 && s.block[0] <= mostThreads &&
         s.block[1] <= mostThreads && s.block[2] <= 64 && uint64_t{s.block[0]} * s.block[1] * s.block[2] <= mostThreads;
}

/// Whether the function belongs to a module of this process.
bool known(const World &w, CUfunction function) {
  for (const CUmodule module : w.modules)
    for (const auto &[name, f] : module->functions)
      if (f.get() == function)
        return true;
  return false;
}

std::map<CUfunction, unsigned> &optedIn() {
  static auto *shared = new std::map<CUfunction, unsigned>;
  return *shared;
}

} // namespace

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                                unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream handle,
                                void **parameters, void **extra) {
  CLEAVE_FAKE_CALL(Context);
  const CUstream stream = streamOf(call, handle);
  if (!stream || !function || !known(call.w, function))
    return CUDA_ERROR_INVALID_HANDLE;
  if (function->module->context != stream->context || function->module->context != call.context)
    return CUDA_ERROR_INVALID_HANDLE;
  auto launched = std::make_shared<Launched>();
  launched->shape = {{gridX, gridY, gridZ}, {blockX, blockY, blockZ}};
  const unsigned limit = optedIn().contains(function) ? optedIn()[function] : mostSharedBytes;
  if (!validShape(launched->shape) || sharedBytes > limit || extra)
    return CUDA_ERROR_INVALID_VALUE;
  if (!parameters && !function->sizes.empty())
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < function->sizes.size(); ++i) {
    if (!parameters[i])
      return CUDA_ERROR_INVALID_VALUE;
    const auto *from = static_cast<const std::byte *>(parameters[i]);
    launched->parameters.emplace_back(from, from + function->sizes[i]);
  }
  launched->function = CUfunc_st(*function);
  launched->library = function->module->library;
  static std::set<std::string> names; // names of work outlive the module
  const char *name = names.insert(function->name).first->c_str();
  return submit(call.w, stream, {name, [launched] { return launched->run(); }, {}});
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CLEAVE_FAKE_CALL(Context);
  if (!function || !known(call.w, function))
    return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
    return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      static_cast<unsigned>(value) > mostSharedOptIn)
    return CUDA_ERROR_INVALID_VALUE;
  optedIn()[function] = static_cast<unsigned>(value);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  CLEAVE_FAKE_CALL(Context);
  if (!function || !known(call.w, function))
    return CUDA_ERROR_INVALID_HANDLE;
  if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? static_cast<int>(mostThreads)
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                                : 0;
  return CUDA_SUCCESS;
}
