// Where a rank's steps run. A device turns a step of the plan into an Op at load: library primitives are created and
// strides resolved then; running an Op allocates nothing and decides nothing.
//
// A segment's slots are numbered locally by a SlotScope; an Op is run with a table of their addresses, one table per
// layout and input buffer, so one Op serves every microbatch.
#pragma once
#include "runtime/plan/PlanTypes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace cleave::plan {
struct Kernel;
struct View;
} // namespace cleave::plan

namespace cleave {

/// Addresses of the slots of a segment, by local number.
using SlotTable = std::byte *const *;

/// What differs from one run of an Op to the next besides addresses.
struct RunContext {
  int64_t step = 0; ///< training step, 1 for the first
  int32_t microbatch = 0;
};

class Op {
public:
  virtual ~Op() = default;
  virtual void run(SlotTable slots, const RunContext &context) = 0;
  /// Told at load, when memory is there, of every table that it may be run with.
  virtual void place(SlotTable slots) {}
};

/// Gives each slot that a segment touches its place in the slot table, in order of first use.
class SlotScope {
public:
  SlotScope(const plan::Plan &plan, const plan::Program &program, const plan::Rank &rank)
      : plan(plan), program(program), rank(rank) {}
  /// Place of `slot` (index of Program.slots).
  uint32_t local(uint32_t slot);
  const plan::Slot &slot(uint32_t slot) const;
  /// Entry of Rank.scalars; `none` for -1.
  int64_t scalar(int32_t index, int64_t none) const;
  const std::vector<uint32_t> &slots() const { return list; }

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Rank &rank;

private:
  std::vector<uint32_t> list;
  std::unordered_map<uint32_t, uint32_t> places;
};

/// A slot's place in the table and a byte offset into it.
struct Operand {
  uint32_t slot = 0;
  int64_t offset = 0;
  std::byte *at(SlotTable table) const { return table[slot] + offset; }
};

/// Where a view begins.
Operand operandOf(const plan::View &view, SlotScope &scope);

/// What a Kernel step gives its kernel: places of the buffers, and this rank's scalars.
struct KernelOperands {
  KernelOperands(const plan::Kernel &kernel, SlotScope &scope);
  std::vector<Operand> buffers;
  std::vector<int64_t> scalars;
};

/// Signature of generated kernels.
using KernelFunction = void (*)(void *const *args, const int64_t *scalars, int64_t begin, int64_t end);
/// Kernels of the plan's code, by index of Plan.kernels; null where the plan carries no code.
using KernelTable = std::vector<KernelFunction>;

class Device {
public:
  virtual ~Device() = default;
  /// Makes the Op for a step that is not a message or a collective. `kernels` outlives it.
  virtual std::unique_ptr<Op> prepare(const plan::Step &step, SlotScope &scope, const KernelTable &kernels) = 0;
  /// Scratch memory that the Ops prepared so far need; one at a time uses it.
  virtual size_t workspaceBytes() const { return 0; }
  /// 64-byte aligned, for all Ops; given after the last prepare and before the first run.
  virtual void setWorkspace(std::byte *memory) {}
};

/// Devices in host memory. "cpu": oneDNN and own loops on `threads` threads. "reference": plain loops in double, one
/// thread. Another name is a user error. ("cuda" has memory of its own: runtime/cuda.)
std::unique_ptr<Device> makeDevice(const std::string &name, unsigned threads);

} // namespace cleave
