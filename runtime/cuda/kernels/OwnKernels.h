// The runtime's own kernels (Kernels.cu), loaded for a device.
#pragma once
#include "runtime/cuda/driver/Context.h"
#include "runtime/device/RandomRows.h"
#include "runtime/plan/PlanTypes.h"

#include <map>
#include <string>

namespace cleave::cuda {

/// Where an Op enqueues its work: set by the runner before each step.
struct Queue {
  CUstream stream = nullptr;
  std::byte *workspace = nullptr;     ///< scratch memory of the compute stream
  const RandomRows *random = nullptr; ///< on the device
};

class OwnKernels {
public:
  OwnKernels();
  /// "cleave_NAME_SUFFIX"
  CUfunction function(const std::string &name);
  /// Launches a kernel with one argument struct for `items` items, with at most as many blocks as needed.
  template <typename Arguments>
  static void start(CUfunction function, const Queue &queue, const Arguments &arguments, int64_t items,
                    unsigned threads = 256) {
    Arguments copy = arguments;
    void *parameters[] = {&copy};
    launch(function, queue.stream, (items + threads - 1) / threads, threads, parameters);
  }
  /// The same with an explicit number of blocks.
  template <typename Arguments>
  static void startBlocks(CUfunction function, const Queue &queue, const Arguments &arguments, int64_t blocks,
                          unsigned threads = 256) {
    Arguments copy = arguments;
    void *parameters[] = {&copy};
    launch(function, queue.stream, blocks, threads, parameters);
  }
  static void launch(CUfunction function, CUstream stream, int64_t blocks, unsigned threads, void **parameters);

private:
  Module module;
  std::map<std::string, CUfunction> functions;
};

/// "f32", "f16", "bf16": suffix of kernel names. Throws an environment error for other types.
std::string elementSuffix(plan::DType dtype);

} // namespace cleave::cuda
