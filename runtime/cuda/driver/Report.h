// Devices, driver and libraries that the CUDA backend finds on this machine, for `cleave doctor`.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace cleave {

struct CudaDeviceReport {
  int number = 0;
  std::string name, target, bus; ///< target: "sm_90"; bus: the PCI address
  int multiprocessors = 0;
  size_t freeBytes = 0, totalBytes = 0;
  std::vector<int> reaches; ///< devices whose memory it can access
};

struct CudaLibraryReport {
  std::string name, version, file; ///< version: "13.0.2"; empty if it is missing
  std::string problem;             ///< why it is missing
};

struct CudaReport {
  std::string driver;  ///< "CUDA 13.0"; empty if there is none
  std::string problem; ///< why no device can be used; empty if one can
  std::vector<CudaDeviceReport> devices;
  std::vector<CudaLibraryReport> libraries; ///< cuBLASLt, cuDNN, NCCL
};

/// Opens everything that is available; does not throw.
CudaReport examineCuda();

} // namespace cleave
