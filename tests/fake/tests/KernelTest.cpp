// Modules and launches: emulated kernels and kernels compiled for the host.
#include "tests/fake/tests/Support.h"

#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <numeric>

using namespace cleave::fake;

namespace {

std::vector<char> readFile(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Module {
  Module() : Module(readFile(CLEAVE_FAKE_KERNELS).data()) {}
  explicit Module(const void *image) { REQUIRE_CUDA(cuModuleLoadData(&handle, image)); }
  ~Module() { cuModuleUnload(handle); }
  Module(const Module &) = delete;
  CUfunction operator[](const char *name) const {
    CUfunction function = nullptr;
    REQUIRE_CUDA(cuModuleGetFunction(&function, handle, name));
    return function;
  }
  CUmodule handle = nullptr;
};

/// The fat binary of the runtime's own kernels begins with these words.
constexpr uint32_t fatbin[4] = {0xba55ed50, 0, 0, 0};

template <typename... A> CUresult launch(CUfunction f, unsigned grid, unsigned block, CUstream stream, A... arguments) {
  void *parameters[] = {&arguments..., nullptr};
  return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
}

std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

} // namespace

TEST_CASE("fake: an emulated map") {
  Gpu gpu("shuffle=9");
  Stream stream;
  Module module;
  Array<float> in(counting(1000)), out(1000);
  for (unsigned blocks : {1u, 3u, 8u}) {
    CHECK_CUDA(cuMemsetD32Async(out.at, 0, 1000, stream));
    CHECK_CUDA(launch(module["add_map"], blocks, 128, stream, in.at, out.at, int64_t{5}, int64_t{1000}));
    stream.wait();
    const std::vector<float> got = out.read();
    for (size_t i = 0; i < 1000; ++i)
      REQUIRE(got[i] == static_cast<float>(i) + 5);
  }
}

TEST_CASE("fake: emulated rows, with barriers and shuffles") {
  Gpu gpu("shuffle=9");
  Stream stream, other;
  Module module;
  Array<float> in(counting(7000)), out(7), again(7);
  CHECK_CUDA(launch(module["sum_rows"], 3, 128, stream, in.at, out.at, int64_t{7}));
  // runs concurrently and has the same shared memory
  CHECK_CUDA(launch(module["sum_rows"], 2, 128, other, in.at, again.at, int64_t{7}));
  stream.wait();
  other.wait();
  for (const auto &got : {out.read(), again.read()})
    for (size_t row = 0; row < 7; ++row)
      CHECK(got[row] == Approx(1000.0 * (1000.0 * static_cast<double>(row) + 499.5)));
  Array<uint32_t> lanes(32);
  CHECK_CUDA(launch(module["lanes_rows"], 1, 32, stream, lanes.at, int64_t{1}));
  stream.wait();
  const std::vector<uint32_t> got = lanes.read();
  for (uint32_t i = 0; i < 32; ++i)
    CHECK(got[i] == (i ^ 31));
}

TEST_CASE("fake: threads that do not agree where to wait are a launch failure") {
  Gpu gpu;
  for (const char *name : {"early_rows", "mixed_rows"}) {
    Stream stream;
    Module module;
    CHECK_CUDA(launch(module[name], 1, 64, stream, int64_t{1}));
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
    cleaveFakeReset();
  }
}

TEST_CASE("fake: kernels compiled for the host") {
  Gpu gpu;
  Stream stream;
  REQUIRE(dlopen(CLEAVE_FAKE_HOST_KERNELS, RTLD_NOW | RTLD_GLOBAL));
  Module module(fatbin);
  Array<float> data(counting(300));
  CHECK_CUDA(launch(module["scaleBy"], 3, 128, stream, data.at, 2.0f, 300LL));
  stream.wait();
  CHECK(data.read()[299] == 598);
  const std::vector<int> zero = {0}, ones(1000, 1);
  Array<int> total(zero), numbers(ones);
  CHECK_CUDA(launch(module["countIntoI32"], 2, 64, stream, total.at, numbers.at, 1000));
  stream.wait();
  CHECK(total.read()[0] == 1000);
  Array<float> sums(4);
  CUdeviceptr from = data.at, to = sums.at;
  void *parameters[] = {&to, &from};
  CHECK_CUDA(cuLaunchKernel(module["sumBlock"], 4, 1, 1, 16, 4, 1, 0, stream, parameters, nullptr));
  CHECK_CUDA(cuLaunchKernel(module["nothing"], 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  stream.wait();
  for (size_t b = 0; b < 4; ++b)
    CHECK(sums.read()[b] == 64.0f * (128.0f * static_cast<float>(b) + 63));
  CUfunction function = nullptr;
  CHECK(cuModuleGetFunction(&function, module.handle, "noSuchKernel") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("fake: a kernel that is given the host's memory reaches an illegal address") {
  Gpu gpu;
  Stream stream;
  Module module;
  float host[4] = {};
  CHECK_CUDA(launch(module["add_map"], 1, 128, stream, &host[0], &host[0], int64_t{1}, int64_t{4}));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  cleaveFakeReset();
}

TEST_CASE("fake: launches that are refused") {
  Gpu gpu;
  Stream stream;
  Module module;
  const CUfunction f = module["add_map"];
  Array<float> a(128);
  const auto shaped = [&](unsigned grid, unsigned block, unsigned shared) {
    CUdeviceptr at = a.at;
    int64_t one = 1, extent = 128;
    void *parameters[] = {&at, &at, &one, &extent};
    return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, stream, parameters, nullptr);
  };
  CHECK_CUDA(shaped(1, 1024, 0));
  CHECK(shaped(1, 1025, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped(0, 128, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped(1, 128, 100000) == CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  CHECK_CUDA(shaped(1, 128, 100000));
  CHECK(launch(nullptr, 1, 1, stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuLaunchKernel(f, 1, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUmodule none = nullptr;
  CHECK(cuModuleLoadData(&none, "not a module at all") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(cuModuleLoadData(&none, "//\n.version 8.0\n") == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  std::vector<char> image = readFile(CLEAVE_FAKE_KERNELS);
  image[18] = static_cast<char>(190); // a cubin
  CHECK(cuModuleLoadData(&none, image.data()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_CUDA(cuStreamSynchronize(stream));
}
