// Code generation. For x86, `cleave.fusion` ops become kernels in one ELF shared object, which the plan contains and
// the runtime loads from memory. For NVIDIA GPUs, they become kernels in one cubin, together with their PTX (ABI in
// GpuEmit.h).
//
// Kernel ABI: void f(void *const *args, const int64_t *scalars, int64_t begin, int64_t end). `args`: the fusion's
// non-scalar operands, then its results, each a contiguous row-major tensor (i1 as bytes 0 and 1); the operands'
// addresses are those of `KernelCall::offsets` bytes further. [begin, end) is a part of [0, extent); begin is a
// multiple of `grain`, and so is end unless it equals the extent. The results have the same bits however the extent is
// divided. Kernels allocate nothing, keep no state and are thread-safe.
#pragma once
#include "runtime/base/Target.h"
#include "runtime/plan/PlanTypes.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class Operation;
}

namespace cleave::passes {

/// x86-64-v4 if this processor has AVX-512 (F, BW, CD, DQ, VL), otherwise x86-64-v3 if it has AVX2 and FMA. Throws
/// environmentError on anything older.
Target hostTarget();
/// Elements of f32 in a vector of the target's kernels; on a GPU every thread works on one.
int lanesOf(Target target);

/// How to run one fusion op.
struct KernelCall {
  unsigned kernel = 0;                  // index of KernelBuilder::kernels()
  int64_t extent = 0, grain = 1;        // of the parallel range; on a GPU: number of results or, for maps, elements
  int64_t blocks = 0;                   // on a GPU: number of blocks that gives every item a thread
  std::vector<unsigned> scalarOperands; // fusion operands passed in `scalars`, in this order, instead of `args`
  std::vector<int64_t> offsets;         // by other operand: bytes from its start to the address in `args`
  /// (result, operand): the result may overwrite the operand's memory (equal shape and element type). Each pair is
  /// valid separately, but only one result may overwrite an operand.
  std::vector<std::pair<unsigned, unsigned>> mayAlias;
};

class KernelBuilder {
public:
  /// `target`: one of Target::all, or the emulated one.
  explicit KernelBuilder(Target target);
  ~KernelBuilder();

  /// Plans the kernel of a `cleave.fusion`. Fusions with equal bodies (after collapsing dimensions) share one kernel.
  KernelCall add(mlir::Operation *fusion);

  /// The batch form of a GPU kernel (GpuEmit.h), as a further entry of kernels().
  unsigned batched(unsigned kernel);

  /// Call after the last add: removes kernels for which `used` (one entry per kernel) is false, and renumbers the
  /// others.
  void keep(const std::vector<bool> &used);

  /// Compiles and links all kernels; empty if there are none. Throws environmentError if no temporary file can be
  /// written.
  std::vector<uint8_t> link();
  /// The kernels as PTX; empty for a CPU. Call after link().
  const std::string &ptx() const;

  struct Info {
    std::string symbol;
    std::string source; // the kernel's schedule as text
    std::string ops;    // names of the fused ops, each once, for display
    size_t fused = 0;   // how many these are
    int threads = 0;    // per block, on a GPU
    bool batch = false; // batch form, on a GPU
    /// The accessed elements, as in plan::KernelArgument; `extent` is -1 if the kernel works for any extent.
    struct Argument {
      plan::DType dtype;
      int64_t base, perExtent;
      bool written;
    };
    std::vector<Argument> arguments;
    unsigned scalars = 0;
    int64_t extent = -1, grain = 1;
    int registers = 0, sharedBytes = 0, spillBytes = 0; // on a GPU, after linking
  };
  const std::vector<Info> &kernels() const;

private:
  KernelCall plan(mlir::Operation *fusion);
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave::passes
