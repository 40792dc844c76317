// Options of a compilation. No MLIR in this header.
#pragma once
#include "partitioner/strategy/Strategy.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::passes {

struct CompileOptions {
  partitioner::Strategy strategy;
  int64_t batch = 0; // global; the traced functions take batch / strategy.microbatches rows
  uint64_t seed = 0;
  int threads = 1; // per rank
  std::string backend = "cpu";
  std::string half = "bf16"; // the half type of `level`: "bf16" or "fp16"
  int64_t level = 0;         // O0 to O3, see passes/precision/Precision.h
  double lossScale = 0;      // 0: none; < 0: dynamic; otherwise the scale
  std::string reduceDtype;   // of gradient reductions over dp: "fp32", "bf16" or "fp16"; empty: the gradients' own
  bool channelsLast = false; // convolutions use [n, h, w, c], see passes/layout/Layout.h
  std::string target;        // target of generated code; empty: the host's ("x86-64-v4", "x86-64-v3")
  bool code = true;          // false: --no-code
  bool batchKernels = true;  // on GPUs, one launch for the optimizer updates of many tensors; false: for comparisons
  std::string model;         // program name
  std::string modelOptions = "{}", data = "{}", training = "{}"; // JSON, stored in the plan
  std::vector<std::string> printAfter;                           // print the IR after these passes to standard error
};

} // namespace cleave::passes
