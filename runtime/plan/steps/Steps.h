// What is known of a step, whatever its kind: what is wrong with it, what it reads and writes, its work, its text. Each
// kind is described once, in the header of its family:
//
//   Products.h       matrix products, attention
//   Windows.h        convolution, pooling
//   Kernels.h        generated code
//   Moves.h          copies, constants, random numbers
//   Lookups.h        reads and sums at indices
//   Communication.h  collectives and messages
//
// The functions here choose the description. A new kind needs all of problem, accesses, isLinear, work, onGpu and text.
#pragma once
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/plan/steps/Work.h"

#include <functional>
#include <string>
#include <vector>

namespace cleave::check {

constexpr uint64_t largest = uint64_t{1} << 46; // bytes or elements; products of accepted values fit in 64 bits

/// Whether these sizes and their product are in [0, largest].
bool sane(std::initializer_list<int64_t> sizes);

/// Length of an optional flatbuffer vector.
template <typename T> uint32_t length(const T *vector) { return vector ? vector->size() : 0; }

/// Number of elements of a slot with valid sizes.
inline uint64_t elementsOf(const plan::Slot &slot) {
  uint64_t all = 1;
  for (uint32_t d = 0; d < length(slot.shape()); ++d)
    all *= static_cast<uint64_t>(slot.shape()->Get(d));
  return all;
}

/// Bytes of the value in a slot; the slot may be larger.
inline uint64_t valueBytes(const plan::Slot &slot) { return elementsOf(slot) * dtypeSize(slot.dtype()); }

/// How a step uses a slot.
struct Access {
  enum Kind { Read, Write, Unknown } kind; ///< Unknown: an argument of a kernel that does not declare what it writes
  uint32_t slot;
  uint64_t begin, bytes; ///< from the first byte accessed to the last; for kernel arguments up to the slot's end
  /// A strided window: runs of `run` bytes, repeated `count` times every `stride` bytes, innermost first. Empty:
  /// contiguous.
  struct Repeat {
    uint64_t count, stride;
  };
  std::vector<Repeat> repeats{};
  uint64_t run = 0;
  bool twice = false;       ///< the window contains some byte twice
  bool accumulated = false; ///< a read of the previous content of the step's output
  int part = -1;            ///< of a collective: its buffer; of a kernel batch: its call
};

/// Calls fn for everything that a step reads and writes, reads first. An accumulating output is a read and a write.
/// With `plan`, whose kernels must be valid, kernel arguments end where their declaration says.
void forEachAccess(const plan::Step &step, const plan::Program &program, const std::function<void(const Access &)> &fn,
                   const plan::Plan *plan = nullptr);

/// The same for a step under construction, without the accessed byte ranges.
std::vector<Access> accessesOf(const plan::StepT &step);

} // namespace cleave::check

namespace cleave::steps {

/// A violated rule of docs/plan.md; no text: none.
struct Defect {
  Defect(std::string text = "", const char *rule = "S5") : rule(rule), text(std::move(text)) {}
  Defect(const char *text) : Defect(std::string(text)) {}
  const char *rule;
  std::string text;
};

/// Where a step is. The plan has passed checkDeclared and checkTables.
struct Context {
  const plan::Plan &plan;
  const plan::Program &program;
  uint32_t index = 0;               ///< of the program
  const plan::Rank *rank = nullptr; ///< the first that runs the program; null: none does
  uint32_t rankIndex = 0;

  const plan::Slot &slot(int64_t slot) const { return *program.slots()->Get(static_cast<uint32_t>(slot)); }
  uint64_t elements(uint32_t at) const { return check::elementsOf(slot(at)); }
  /// Bytes of the value in a slot.
  double bytes(int64_t at) const { return static_cast<double>(check::valueBytes(slot(at))); }
};

/// How a GPU runs a step.
struct OnGpu {
  enum Library { None, CublasLt, Cudnn, Nccl } library = None;
  uint64_t workspace = 0; ///< bytes of scratch memory outside the arena, exactly or at most
  uint32_t stream = 0;    ///< Step.stream
};

/// What is wrong with a step's operands and sizes (rules S5, S6, S13); not whether they are inside of their slots.
Defect problem(const plan::Step &step, const Context &context);
/// What is wrong with what it accesses (rules S7, S8). Requires that problem() is satisfied and that every access is
/// inside its slot.
Defect placedProblem(const plan::Step &step, const Context &context);
/// Whether the step is linear in its inputs, so that partial inputs give partial results.
bool isLinear(const plan::Step &step);
/// Floating-point operations of a product, a convolution or attention; a multiplication and an addition are two. 0 for
/// other kinds, whose time is that of moving bytes.
double flops(const plan::Step &step);
double flops(const plan::StepT &step);
/// The work of a step of a checked plan; none for communication.
Work work(const plan::Step &step, const Context &context);
OnGpu onGpu(const plan::Step &step);
/// The step as `cleave show --steps` prints it. The calls of a batch of kernels are not in it.
std::string text(const plan::Step &step, const plan::Plan &plan);

} // namespace cleave::steps
