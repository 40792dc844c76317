// Constants of device families. Values marked "fitted" were chosen so that the predictions of the tables named there
// come close (bench/predict); all others come from the source given, not from those tables.
#include "partitioner/cost/Constants.h"

#include "runtime/base/Error.h"

#include <algorithm>

namespace cleave::partitioner {

namespace {

// Blocks of cuBLAS and CUTLASS kernels (NVIDIA, "Matrix Multiplication Background User's Guide", which also has the
// wave model). Efficiencies: operand bytes per operation go with 1/rows + 1/columns; the largest block just hides them.
constexpr Tile halfTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92},
                              {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.55}};
// fp32 without tensor cores: 64 multiply-adds a cycle need fewer bytes, so that small blocks lose little.
constexpr Tile fp32Tiles[] = {{128, 128, 1.0}, {128, 64, 0.95}, {64, 128, 0.95},
                              {64, 64, 0.88},  {64, 32, 0.7},   {32, 32, 0.5}};

//                                        none product conv attention stream copy lookup pooling random
constexpr std::array<double, workClassCount> voltaMemory{1, 0.85, 0.80, 0.80, 0.83, 0.65, 0.60, 0.65, 0.60};
constexpr std::array<double, workClassCount> ampereMemory{1, 0.88, 0.85, 0.85, 0.85, 0.70, 0.60, 0.70, 0.65};
constexpr std::array<double, workClassCount> coreMemory{1, 0.8, 0.8, 0.8, 0.7, 0.5, 0.4, 0.4, 0.1};

constexpr DeviceConstants table[] = {
    {
        .family = "v100",
        .backend = "cuda",
        .launchSeconds = 3e-6,
        .multiprocessors = 80,
        .fp32Tiles = fp32Tiles,
        .halfTiles = halfTiles,
        .fillDepth = {16, 0, 64, 64},
        .productFraction = {0.90, 0, 0.68, 0},
        .convolutionFraction = {0.68, 0, 0.50, 0},
        .boost = {1.05, 1.25, 1.25, 1.25},
        .winogradGain = 1.5,
        .halfSize = 0,
        .attentionForward = 0,
        .attentionBackward = 0,
        .scorePassesForward = 4.5,
        .scorePassesBackward = 6,
        .memoryFraction = voltaMemory,
        .cacheBytes = 6e6,
        .cacheSpeed = 2,
        .reservedBytes = uint64_t{1} << 30,
        .communicationSeconds = 5e-6,
        .insideFraction = 0.95,
        .messageFraction = 0.35,
        .networkFraction = 0.85,
        .deviceNetworkBytesPerSecond = 12e9,
    },
    {
        .family = "a100",
        .backend = "cuda",
        .launchSeconds = 2.5e-6,
        .multiprocessors = 108,
        .fp32Tiles = fp32Tiles,
        .halfTiles = halfTiles,
        .fillDepth = {16, 64, 96, 96},
        .productFraction = {0.90, 0.66, 0.66, 0.66},
        .convolutionFraction = {0.80, 0.55, 0.55, 0.55},
        .boost = {1.05, 1.25, 1.25, 1.25},
        .winogradGain = 1.5,
        .halfSize = 0,
        .attentionForward = 0,
        .attentionBackward = 0,
        .scorePassesForward = 4.5,
        .scorePassesBackward = 6,
        .memoryFraction = ampereMemory,
        .cacheBytes = 40e6,
        .cacheSpeed = 2,
        .reservedBytes = uint64_t{1} << 30,
        .communicationSeconds = 5e-6,
        .insideFraction = 0.78,
        .messageFraction = 0.85,
        .networkFraction = 0.85,
        .deviceNetworkBytesPerSecond = 25e9,
    },
    {
        .family = "h100",
        .backend = "cuda",
        .launchSeconds = 2.5e-6,
        .multiprocessors = 132,
        .fp32Tiles = fp32Tiles,
        .halfTiles = halfTiles,
        .fillDepth = {16, 96, 128, 128},
        .productFraction = {0.85, 0.65, 0.65, 0.65},
        .convolutionFraction = {0.75, 0.5, 0.5, 0.5},
        .boost = {1.05, 1.25, 1.25, 1.25},
        .winogradGain = 1.5,
        .halfSize = 0,
        .attentionForward = 0.45,
        .attentionBackward = 0.4,
        .scorePassesForward = 4.5,
        .scorePassesBackward = 6,
        .memoryFraction = ampereMemory,
        .cacheBytes = 50e6,
        .cacheSpeed = 2,
        .reservedBytes = uint64_t{1} << 30,
        .communicationSeconds = 5e-6,
        .insideFraction = 0.78,
        .messageFraction = 0.85,
        .networkFraction = 0.85,
        .deviceNetworkBytesPerSecond = 50e9,
    },
    {
        .family = "cuda",
        .backend = "cuda",
        .launchSeconds = 3e-6,
        .multiprocessors = 108,
        .fp32Tiles = fp32Tiles,
        .halfTiles = halfTiles,
        .fillDepth = {16, 64, 96, 96},
        .productFraction = {0.85, 0.65, 0.65, 0.65},
        .convolutionFraction = {0.75, 0.5, 0.5, 0.5},
        .boost = {1.05, 1.25, 1.25, 1.25},
        .winogradGain = 1.5,
        .halfSize = 0,
        .attentionForward = 0.35,
        .attentionBackward = 0.3,
        .scorePassesForward = 4.5,
        .scorePassesBackward = 6,
        .memoryFraction = ampereMemory,
        .cacheBytes = 20e6,
        .cacheSpeed = 2,
        .reservedBytes = uint64_t{1} << 30,
        .communicationSeconds = 5e-6,
        .insideFraction = 0.8,
        .messageFraction = 0.7,
        .networkFraction = 0.85,
        .deviceNetworkBytesPerSecond = 25e9,
    },
    {
        .family = "cpu",
        .backend = "cpu",
        .launchSeconds = 1e-6,
        .multiprocessors = 0,
        .fp32Tiles = {},
        .halfTiles = {},
        .fillDepth = {},
        .productFraction = {0.9, 0.9, 0.9, 0.9},
        .convolutionFraction = {0.75, 0.75, 0.6, 0.6},
        .boost = {1, 1, 1, 1},
        .winogradGain = 1,
        .halfSize = 12,
        .attentionForward = 0,
        .attentionBackward = 0,
        .scorePassesForward = 2,
        .scorePassesBackward = 3,
        .memoryFraction = coreMemory,
        .cacheBytes = 2e6,
        .cacheSpeed = 3,
        .reservedBytes = 0,
        .communicationSeconds = 2e-6,
        .insideFraction = 0.8,
        .messageFraction = 0.8,
        .networkFraction = 0.8,
        .deviceNetworkBytesPerSecond = 1e12,
    },
};

} // namespace

std::span<const DeviceConstants> allConstants() { return table; }

const DeviceConstants &constantsOf(const DeviceKind &kind) {
  const std::string family = kind.name.substr(0, kind.name.find_first_of("-_ "));
  for (const DeviceConstants &entry : table)
    if (entry.family == family && entry.backend == kind.backend)
      return entry;
  for (const DeviceConstants &entry : table)
    if (entry.family == kind.backend)
      return entry;
  throw userError("device " + kind.name + ": no constants for backend " + kind.backend);
}

} // namespace cleave::partitioner
