// What of this machine the CUDA backend finds, for `cleave doctor`.
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
  std::vector<int> reaches; ///< devices whose memory it can address
};

struct CudaLibraryReport {
  std::string name, version, file; ///< version: "13.0.2"; empty where it is missing
  std::string problem;             ///< why it is missing
};

struct CudaReport {
  std::string driver;  ///< "CUDA 13.0"; empty where there is none
  std::string problem; ///< why no device can be used; empty where one can
  std::vector<CudaDeviceReport> devices;
  std::vector<CudaLibraryReport> libraries; ///< cuBLASLt, cuDNN, NCCL
};

/// Opens what there is; throws nothing.
CudaReport examineCuda();

} // namespace cleave
