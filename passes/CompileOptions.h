// What a compilation is asked for. No MLIR in this header.
#pragma once
#include "partitioner/strategy/Strategy.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes {

struct CompileOptions {
  partitioner::Strategy strategy;
  int64_t batch = 0; // global; batch / strategy.microbatches rows were traced
  uint64_t seed = 0;
  int threads = 1; // per rank
  std::string backend = "cpu";
  std::string half = "bf16"; // the half type of `level`: "bf16" or "fp16"
  int64_t level = 0;         // O0 to O3, see passes/precision/Precision.h
  double lossScale = 0;      // 0: none; < 0: dynamic; else its value
  std::string reduceDtype;   // "fp32", "bf16" or "fp16": of gradients summed over dp; empty: their own
  bool channelsLast = false; // convolutions on [n, h, w, c], see passes/layout/Layout.h
  std::string target;        // code target; empty: the host's ("x86-64-v4", "x86-64-v3")
  bool code = true;          // false: --no-code
  bool batchKernels = true;  // on GPUs, one launch for optimizer updates of many tensors; false: to compare with
  std::string model;         // program name
  std::string modelOptions = "{}", data = "{}", training = "{}"; // JSON, stored in the plan
  std::vector<std::string> printAfter;                           // pass names whose result is printed to standard error
};

} // namespace cleave::passes
