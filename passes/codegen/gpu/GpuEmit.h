// Translates loop nests of width 1 to LLVM IR for GPU threads.
//
// Kernel ABI: the parameters are the buffers (non-scalar inputs, then outputs), each aligned to 16 bytes, the scalars
// as i64, and the extent as i64. Blocks are one-dimensional with `Launch::threads` threads; the results do not depend
// on the number of blocks.
//
// In batch form a kernel runs several calls in one launch. Its parameters are a table in device memory and, as i64, the
// number of calls; plan.fbs (KernelBatch) describes how a block finds its call in the table. Each call has its own
// blocks and computes the same bits as in a separate launch.
//
//   map      a thread processes one or more chunks of adjacent elements at a time, 16 bytes if aligned
//   rows     a warp, or a block if rows are long or few, reduces a row: shuffles, then shared memory; a row that fits
//            stays in registers for all sweeps
//   columns  a thread processes a chunk of adjacent columns; lines of threads share a column's length and combine their
//            parts in shared memory
#pragma once
#include "passes/codegen/nest/LoopNest.h"

#include <string>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace cleave::passes::kernel {

/// Launch configuration of a kernel.
struct Launch {
  int threads = 128;      ///< per block
  int threadsPerRow = 1;  ///< that share a row or a chunk of columns
  int64_t items = 1;      ///< chunks of maps, rows, chunks of columns
  int64_t perBlock = 1;   ///< items that a block processes at a time
  bool together = false;  ///< the threads of a block synchronise
  int64_t blocks() const; ///< the number that gives every item a thread, at most mostBlocks
};
Launch launchOf(const LoopNest &nest);

/// How thread intrinsics are emitted: as PTX, or as calls to functions that a test supplies to run the kernel on a CPU
/// (cleave_emu_tid, _block, _blocks, _barrier, _warp_barrier, _shuffle_f32, _shuffle_i32). Emulated kernels use the
/// CPU's ABI, with `end` as the extent; in batch form the table is the only buffer and the number of calls the extent.
/// The symbol NAME_parameters holds two u32: the numbers of buffers and scalars.
enum class ThreadWords { Ptx, Emulated };

llvm::Function *emitGpuKernel(const LoopNest &nest, llvm::Module &module, const std::string &name, ThreadWords words,
                              bool batch = false);

} // namespace cleave::passes::kernel
