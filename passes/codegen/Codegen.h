// Code generation: `cleave.fusion` ops to x86 kernels in one ELF shared object, which the plan carries and the runtime
// opens from memory; or to kernels for NVIDIA GPUs in one cubin, with their PTX (ABI in GpuEmit.h).
//
// Kernel ABI: void f(void *const *args, const int64_t *scalars, int64_t begin, int64_t end). `args`: the fusion's
// operands that are not scalars, then its results, each a contiguous row-major tensor (i1 as bytes 0 and 1). [begin,
// end) is a part of [0, extent); begin is a multiple of `grain`, and so is end unless it is the extent. The bits of the
// results do not depend on how the extent is cut. Kernels allocate nothing, keep no state and may run on many threads
// at once.
#pragma once
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

/// "x86-64-v4" where this processor has AVX-512 (F, BW, CD, DQ, VL), "x86-64-v3" where it has AVX2 and FMA.
/// Throws environmentError on anything older.
std::string hostTarget();
/// The targets that code can be generated for.
const std::vector<std::string> &cpuTargets();
const std::vector<std::string> &gpuTargets();
/// A GPU's code for threads that a CPU plays, one by one, in an ELF shared object: what the tests run where there is no
/// GPU (GpuEmit.h, ThreadWords::Emulated).
inline constexpr const char *emulatedTarget = "emulated";
/// One of gpuTargets() or emulatedTarget.
bool isGpuTarget(const std::string &target);

/// How one fusion op is executed.
struct KernelCall {
  unsigned kernel = 0;                  // index of KernelBuilder::kernels()
  int64_t extent = 0, grain = 1;        // of the parallel range; on a GPU all results or, of maps, elements
  int64_t blocks = 0;                   // on a GPU: as many as give every item a thread
  std::vector<unsigned> scalarOperands; // fusion operands given in `scalars`, in this order, not in `args`
  /// (result, operand): the result may be written over the operand's memory (equal shape and element type). Each pair
  /// holds by itself; one operand can be overwritten by one result only.
  std::vector<std::pair<unsigned, unsigned>> mayAlias;
};

class KernelBuilder {
public:
  /// `target`: one of cpuTargets() or gpuTargets(); anything else is a userError.
  explicit KernelBuilder(std::string target);
  ~KernelBuilder();

  /// Plans the kernel of a `cleave.fusion`; fusions with equal bodies (up to collapsible shapes) share one kernel.
  KernelCall add(mlir::Operation *fusion);

  /// A GPU's kernel in batch form (GpuEmit.h), which is another one of kernels().
  unsigned batched(unsigned kernel);

  /// After the last add: forgets the kernels that are not `used` (an entry for each of kernels()). The others move up.
  void keep(const std::vector<bool> &used);

  /// Compiles and links all kernels added so far; empty where there are none. Throws environmentError where no
  /// temporary file can be written.
  std::vector<uint8_t> link();
  /// The kernels as PTX; empty for a CPU. After link().
  const std::string &ptx() const;

  struct Info {
    std::string symbol;
    std::string source;                                 // the kernel's schedule as text
    std::string ops;                                    // the fused ops, for people
    int threads = 0;                                    // of a block, on a GPU
    bool batch = false;                                 // in batch form, on a GPU
    /// What the code touches, as plan::KernelArgument says it: `extent` -1 where it is for any.
    struct Argument {
      plan::DType dtype;
      int64_t base, perExtent;
      bool written;
    };
    std::vector<Argument> arguments;
    unsigned scalars = 0;
    int64_t extent = -1, grain = 1;
    int registers = 0, sharedBytes = 0, spillBytes = 0; // on a GPU, once linked
  };
  const std::vector<Info> &kernels() const;

private:
  KernelCall plan(mlir::Operation *fusion);
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace cleave::passes
