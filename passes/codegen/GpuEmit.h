// Programs of width 1 to LLVM IR for the threads of a GPU.
//
// Kernel ABI: parameters are the buffers (inputs that are not scalars, then outputs), the scalars as i64, and the
// extent as i64; blocks of `Launch::threads` threads in one dimension, any number of blocks. Results do not depend on
// how many.
//
//   map      a thread takes `unroll` neighbouring elements at a time
//   rows     a warp, or a block where rows are long, reduces a row: shuffles, then shared memory, in a fixed order
//   columns  a thread reduces a column; neighbouring threads, neighbouring columns
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
  int threadsPerRow = 1;  ///< rows: 32 or `threads`
  int64_t items = 1;      ///< elements, rows or columns that a thread (rows: its group) takes one at a time
  int64_t blocks() const; ///< as many as give every item a thread
  int sharedBytes = 0;
};
Launch launchOf(const Program &program);

/// What the threads' own words are: PTX, or functions that a test supplies to run the kernel on a CPU
/// (cleave_emu_tid, _block, _blocks, _barrier, _warp_barrier, _shuffle_f32, _shuffle_i32) with the CPU's ABI, `end`
/// being the extent. Beside an emulated kernel stands NAME_parameters: two u32, its numbers of buffers and scalars.
enum class ThreadWords { Ptx, Emulated };

llvm::Function *emitGpuKernel(const Program &program, llvm::Module &module, const std::string &name, ThreadWords words);

} // namespace cleave::passes::kernel
