// NVIDIA's data sheets, a row for each product for which code is generated. Peaks are dense, with sums in fp32.
#include "partitioner/cluster/KnownGpus.h"

#include <array>
#include <cmath>
#include <string_view>

namespace cleave::partitioner {
namespace {

struct Gpu {
  std::string_view contains;            ///< of the driver's name; the first row that suits counts
  const char *kind;                     ///< begins with the family of its constants (partitioner/cost/Constants.cpp)
  double gbPerS;                        ///< 1e9 bytes a second of its memory
  std::array<double, rateCount> tflops; ///< fp32, tf32, fp16, bf16
  double inside; ///< 1e9 bytes a second to other GPUs of the machine, in one direction: NVLink, or else PCIe
};

constexpr double pcie4 = 32, pcie5 = 64; ///< x16

constexpr Gpu gpus[] = {
    {"B200", "b200", 8000, {75, 1100, 2250, 2250}, 900},
    {"H200 NVL", "h200-nvl", 4800, {60, 418, 835, 835}, 450},
    {"GH200", "h200-gh200", 4000, {67, 494, 989, 989}, 450},
    {"H200", "h200", 4800, {67, 494, 989, 989}, 450},
    {"H100 NVL", "h100-nvl", 3900, {60, 418, 835, 835}, 300},
    {"H100 PCIe", "h100-pcie", 2000, {51, 378, 756, 756}, pcie5},
    {"H100", "h100", 3350, {67, 494, 989, 989}, 450},
    {"A100-SXM4-80GB", "a100-80g", 2039, {19.5, 156, 312, 312}, 300},
    {"A100-SXM4-40GB", "a100-40g", 1555, {19.5, 156, 312, 312}, 300},
    {"A100 80GB PCIe", "a100-80g-pcie", 1935, {19.5, 156, 312, 312}, pcie4},
    {"A100-PCIE-40GB", "a100-40g-pcie", 1555, {19.5, 156, 312, 312}, pcie4},
    {"L40S", "l40s", 864, {91.6, 183, 362, 362}, pcie4},
    {"L40", "l40", 864, {90.5, 90.5, 181, 181}, pcie4},
    {"L4", "l4", 300, {30.3, 60, 121, 121}, pcie4},
    {"A10G", "a10g", 600, {31.5, 35, 70, 70}, pcie4},
    {"A10", "a10", 600, {31.2, 62.5, 125, 125}, pcie4},
    {"RTX A6000", "a6000", 768, {38.7, 77.4, 155, 155}, pcie4},
    {"RTX 6000 Ada", "rtx6000", 960, {91.1, 182, 364, 364}, pcie4},
    {"RTX 4090", "rtx4090", 1008, {82.6, 82.6, 165, 165}, pcie4},
    {"RTX 3090", "rtx3090", 936, {35.6, 35.6, 71, 71}, pcie4},
};

} // namespace

std::optional<Cluster> clusterOfGpus(const std::string &name, double bytes, int64_t count) {
  for (const Gpu &gpu : gpus) {
    if (name.find(gpu.contains) == std::string::npos)
      continue;
    const double gib = std::round(bytes / (1 << 30) * 10) / 10;
    NodeGroup node{.count = 1, .devices = {{0, count}}, .inside = std::nullopt};
    if (count > 1)
      node.inside = Link{.gbPerS = gpu.inside, .latencyUs = 3};
    return Cluster{.name = "this machine",
                   .devices = {{.name = gpu.kind,
                                .backend = "cuda",
                                .memoryGib = gib,
                                .memoryGbPerS = gpu.gbPerS,
                                .peakTflops = gpu.tflops,
                                .fusedAttention = true}},
                   .nodes = {node},
                   .network = std::nullopt};
  }
  return std::nullopt;
}

} // namespace cleave::partitioner
