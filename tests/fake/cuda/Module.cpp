// Modules and their functions.
#include "tests/fake/cuda/Module.h"

#include "tests/fake/cuda/Capture.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace cleave::fake;

namespace {

constexpr uint32_t fatbinMagic = 0xba55ed50;

/// The size of an ELF image: the end of its last section or table.
size_t imageBytes(const char *image, const Elf64_Ehdr &header) {
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * header.e_shentsize, sizeof section);
    if (section.sh_type != SHT_NOBITS)
      end = std::max<size_t>(end, section.sh_offset + section.sh_size);
  }
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image + header.e_phoff + i * header.e_phentsize, sizeof segment);
    end = std::max<size_t>(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

/// Kernels call functions of this library, so its symbols must become global.
void becomeGlobal() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<void *>(&becomeGlobal), &self))
    dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

CUresult openElf(const char *image, std::shared_ptr<void> &library) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_machine != EM_X86_64 || header.e_type != ET_DYN) {
    std::fprintf(stderr, "fake CUDA: the image is for machine %d: only emulated kernels run here\n", header.e_machine);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const int file = memfd_create("kernels", MFD_CLOEXEC);
  const size_t bytes = imageBytes(image, header);
  bool good = file >= 0;
  for (size_t done = 0; good && done < bytes;) {
    const ssize_t written = write(file, image + done, bytes - done);
    good = written > 0;
    done += good ? static_cast<size_t>(written) : 0;
  }
  becomeGlobal();
  void *handle = good ? dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!handle)
    std::fprintf(stderr, "fake CUDA: the image cannot be opened: %s\n", good ? dlerror() : "no memory");
  // The file stays open as long as the library: dlopen identifies a library by its path, so a second module whose file
  // got the same number would receive the first one's code and shared memory.
  library = std::shared_ptr<void>(handle, [file](void *h) {
    if (h)
      dlclose(h);
    close(file);
  });
  return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult load(Call &call, CUmodule *result, const void *image) {
  if (!result || !image)
    return CUDA_ERROR_INVALID_VALUE;
  auto module = std::make_unique<CUmod_st>();
  module->context = call.context;
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  module->host = magic == fatbinMagic;
  if (!module->host) {
    if (std::memcmp(image, ELFMAG, SELFMAG) != 0)
      return std::memcmp(image, "//", 2) == 0 || std::memcmp(image, ".ver", 4) == 0 ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                                                    : CUDA_ERROR_INVALID_IMAGE;
    if (const CUresult bad = openElf(static_cast<const char *>(image), module->library); bad != CUDA_SUCCESS)
      return bad;
  }
  *result = module.release();
  call.w.modules.insert(*result);
  return CUDA_SUCCESS;
}

void *symbolOf(const CUmod_st &module, const std::string &name) {
  if (module.library)
    return dlsym(module.library.get(), name.c_str());
  if (void *found = dlsym(RTLD_DEFAULT, name.c_str()))
    return found;
  Dl_info self{};
  dladdr(reinterpret_cast<void *>(&becomeGlobal), &self);
  void *handle = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return handle ? dlsym(handle, name.c_str()) : nullptr;
}

std::unique_ptr<CUfunc_st> findFunction(CUmodule module, const std::string &name) {
  const std::string symbol = (module->host ? "cleave_host_kernel_" : "") + name;
  auto function = std::make_unique<CUfunc_st>();
  function->module = module;
  function->name = name;
  function->host = module->host;
  function->entry = symbolOf(*module, symbol);
  const auto *counts = static_cast<const uint32_t *>(symbolOf(*module, symbol + "_parameters"));
  if (!function->entry || !counts)
    return nullptr;
  if (module->host) {
    function->sizes.assign(counts + 1, counts + 1 + counts[0]);
  } else {
    function->buffers = counts[0];
    function->sizes.assign(counts[0] + counts[1] + 1, 8);
  }
  return function;
}

} // namespace

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
  CLEAVE_FAKE_CALL(Context | Safe);
  return load(call, module, image);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
  CLEAVE_FAKE_CALL(Context | Safe);
  return load(call, module, image);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  CLEAVE_FAKE_CALL(Context | Safe | Frees);
  if (!call.w.modules.contains(module))
    return CUDA_ERROR_INVALID_HANDLE;
  awaitContext(call, module->context);
  const CUcontext context = module->context;
  call.w.modules.erase(module);
  delete module;
  return context->error;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *result, CUmodule module, const char *name) {
  CLEAVE_FAKE_CALL(Context);
  if (!result || !name)
    return CUDA_ERROR_INVALID_VALUE;
  if (!call.w.modules.contains(module))
    return CUDA_ERROR_INVALID_HANDLE;
  auto &known = module->functions[name];
  if (!known)
    known = findFunction(module, name);
  *result = known.get();
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  CLEAVE_FAKE_CALL(Context);
  if (!call.w.modules.contains(module) || !name)
    return CUDA_ERROR_INVALID_HANDLE;
  void *found = module->library ? dlsym(module->library.get(), name) : nullptr;
  Dl_info info{};
  const Elf64_Sym *symbol = nullptr;
  if (!found || !dladdr1(found, &info, reinterpret_cast<void **>(const_cast<Elf64_Sym **>(&symbol)), RTLD_DL_SYMENT) ||
      !symbol)
    return CUDA_ERROR_NOT_FOUND;
  if (address)
    *address = reinterpret_cast<CUdeviceptr>(found);
  if (bytes)
    *bytes = symbol->st_size;
  return CUDA_SUCCESS;
}
