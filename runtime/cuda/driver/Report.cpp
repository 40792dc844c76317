// Reads the versions of the driver and of each library.
#include "runtime/cuda/driver/Report.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Context.h"
#include "runtime/cuda/driver/Library.h"

#include <fmt/format.h>

namespace cleave {

using namespace cuda;

namespace {

CudaDeviceReport describeDevice(int number, int devices) {
  const Context context(number);
  CudaDeviceReport report;
  report.number = number;
  report.name = context.name();
  report.target = fmt::format("sm_{}", context.capability());
  report.multiprocessors = context.multiprocessors();
  report.freeBytes = context.freeBytes();
  report.totalBytes = context.totalBytes();
  CUdevice device = 0;
  char bus[32] = {};
  cuda::check(driver().deviceGet(&device, number), "cuDeviceGet");
  if (driver().deviceGetPCIBusId(bus, sizeof bus - 1, device) == CUDA_SUCCESS)
    report.bus = bus;
  for (int other = 0; other < devices; ++other) {
    CUdevice peer = 0;
    int reaches = 0;
    if (other != number && driver().deviceGet(&peer, other) == CUDA_SUCCESS &&
        driver().deviceCanAccessPeer(&reaches, device, peer) == CUDA_SUCCESS && reaches)
      report.reaches.push_back(other);
  }
  return report;
}

/// `function` returns the version, `read` formats it.
template <typename Function, typename Read>
CudaLibraryReport describeLibrary(const char *name, const std::vector<std::string> &files, const char *function,
                                  Read read) {
  CudaLibraryReport report{name, "", "", ""};
  const Library library = Library::open(files);
  if (!library) {
    report.problem = library.why;
    return report;
  }
  report.file = library.name;
  if (const auto get = reinterpret_cast<Function>(library.symbol(function)))
    report.version = read(get);
  else
    report.problem = fmt::format("{} has no {}", library.name, function);
  return report;
}

/// Formats 10000 * major + 100 * minor + patch.
std::string dotted(size_t number) { return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100); }

} // namespace

CudaReport examineCuda() {
  CudaReport report;
  try {
    int version = 0, devices = 0;
    cuda::check(driver().driverGetVersion(&version), "cuDriverGetVersion");
    report.driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
    cuda::check(driver().deviceGetCount(&devices), "cuDeviceGetCount");
    for (int number = 0; number < devices; ++number)
      report.devices.push_back(describeDevice(number, devices));
  } catch (const Error &error) {
    report.problem = error.what();
  }
  using Number = size_t (*)();
  using Fill = int (*)(int *);
  report.libraries.push_back(describeLibrary<Number>("cuBLASLt",
                                                     {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                                                     "cublasLtGetVersion", [](Number get) { return dotted(get()); }));
  report.libraries.push_back(
      describeLibrary<Number>("cuDNN", {"libcudnn.so.9"}, "cudnnGetVersion", [](Number get) { return dotted(get()); }));
  report.libraries.push_back(describeLibrary<Fill>("NCCL", {"libnccl.so.2"}, "ncclGetVersion", [](Fill get) {
    int version = 0;
    get(&version);
    return dotted(static_cast<size_t>(version));
  }));
  return report;
}

} // namespace cleave
