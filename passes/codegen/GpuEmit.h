// Programs of width 1 to LLVM IR for the threads of a GPU.
//
// Kernel ABI: parameters are the buffers (inputs that are not scalars, then outputs), each at a multiple of 16 bytes,
// the scalars as i64, and the extent as i64; blocks of `Launch::threads` threads in one dimension, any number of
// blocks. Results do not depend on how many.
//
// In batch form a kernel runs several calls in one launch. Its parameters are a table in the device's memory and, as
// i64, the number of calls; plan.fbs (KernelBatch) says how the table tells a block its call. A call has the blocks
// that are given to it to itself, and computes the same bits as by itself.
//
//   map      a thread takes a chunk of neighbouring elements at a time, 16 bytes where alignment allows, or several
//   rows     a warp, or a block where rows are long or few, reduces a row: shuffles, then shared memory; a row that
//            fits stays in registers over all sweeps
//   columns  a thread takes a chunk of neighbouring columns; lines of threads share the column's length and combine
//            through shared memory
#pragma once
#include "passes/codegen/Program.h"

#include <string>

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace cleave::passes::kernel {

/// How a kernel is started.
struct Launch {
  int threads = 128;      ///< of a block
  int threadsPerRow = 1;  ///< that share a row or a chunk of columns
  int64_t items = 1;      ///< chunks of maps, rows, chunks of columns
  int64_t perBlock = 1;   ///< items that a block takes at a time
  bool together = false;  ///< threads of a block wait for each other
  int64_t blocks() const; ///< as many as give every item a thread
};
Launch launchOf(const Program &program);

/// What the threads' own words are: PTX, or functions that a test supplies to run the kernel on a CPU
/// (cleave_emu_tid, _block, _blocks, _barrier, _warp_barrier, _shuffle_f32, _shuffle_i32) with the CPU's ABI, `end`
/// being the extent; in batch form the table is the one buffer and the number of calls the extent. Beside an emulated
/// kernel stands NAME_parameters: two u32, its numbers of buffers and scalars.
enum class ThreadWords { Ptx, Emulated };

llvm::Function *emitGpuKernel(const Program &program, llvm::Module &module, const std::string &name, ThreadWords words,
                              bool batch = false);

} // namespace cleave::passes::kernel
