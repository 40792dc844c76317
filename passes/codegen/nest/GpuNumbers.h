// Numbers of NVIDIA's GPUs that decide how threads divide a kernel, and what it costs. From NVIDIA's CUDA C++
// Programming Guide, which gives the same for all of Target's architectures, except where said.
#pragma once
#include <cstdint>

namespace cleave::passes::kernel {

inline constexpr int warp = 32;                                 ///< threads that run in step
inline constexpr int accessBytes = 16;                          ///< the widest load or store of a thread
inline constexpr int sectorBytes = 32;                          ///< the smallest transaction of the memory
inline constexpr int residentThreads = 2048;                    ///< most threads on a multiprocessor at a time
inline constexpr int64_t staticSharedBytes = int64_t{48} << 10; ///< most shared memory of a block without a request
inline constexpr int64_t mostBlocks = (int64_t{1} << 31) - 1;   ///< of a launch, along its first dimension

/// Multiprocessors. A loop nest is planned without its target, so that this is one number for all: that of an H100 SXM
/// (NVIDIA H100 Tensor Core GPU Architecture, 2022). An A100 has 108.
inline constexpr int64_t multiprocessors = 132;

} // namespace cleave::passes::kernel
