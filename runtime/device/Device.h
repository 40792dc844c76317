// Devices run a rank's steps. At load, a device converts a step of the plan to an Op: it creates library primitives and
// resolves strides. Running an Op allocates nothing and makes no decisions.
//
// A SlotScope numbers a segment's slots locally. An Op runs with a table of their addresses, one table per layout and
// input buffer, so one Op serves every microbatch.
#pragma once
#include "runtime/device/RandomRows.h"
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

class Tuning;

/// Addresses of a segment's slots, by local number.
using SlotTable = std::byte *const *;

/// Data that varies between runs of an Op, besides addresses.
struct RunContext {
  RandomRows random;
  int32_t microbatch = 0;
  uint64_t iteration = 0; ///< another one for every run of a program; 0: nothing is kept from one Op to another
};

class Op {
public:
  virtual ~Op() = default;
  virtual void run(SlotTable slots, const RunContext &context) = 0;
  /// Called at load, after memory is allocated, with every table that the Op may run with.
  virtual void place(SlotTable slots) {}
};

/// Assigns each slot that a segment uses an index in the slot table, in order of first use.
class SlotScope {
public:
  SlotScope(const plan::Plan &plan, const plan::Program &program, const plan::Rank &rank, const plan::Segment &segment)
      : plan(plan), program(program), rank(rank), segment(segment) {}
  /// The index of `slot` (index of Program.slots).
  uint32_t local(uint32_t slot);
  const plan::Slot &slot(uint32_t slot) const;
  /// An entry of Rank.scalars; `none` for index -1.
  int64_t scalar(int32_t index, int64_t none) const;
  const std::vector<uint32_t> &slots() const { return list; }
  /// Rows of a microbatch; in a segment of evaluation those of its batch.
  int64_t rows() const;

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Rank &rank;
  const plan::Segment &segment;

private:
  std::vector<uint32_t> list;
  std::unordered_map<uint32_t, uint32_t> places;
};

/// A slot's index in the table and a byte offset within the slot.
struct StepOperand {
  uint32_t slot = 0;
  int64_t offset = 0;
  std::byte *at(SlotTable table) const { return table[slot] + offset; }
};

/// The start of a view.
StepOperand operandOf(const plan::View &view, SlotScope &scope);

/// The arguments of a Kernel step: its buffers, and this rank's scalars.
struct KernelOperands {
  KernelOperands(const plan::Kernel &kernel, SlotScope &scope);
  std::vector<StepOperand> buffers;
  std::vector<int64_t> scalars;
};

/// Signature of generated kernels.
using KernelFunction = void (*)(void *const *args, const int64_t *scalars, int64_t begin, int64_t end);
/// Kernels of the plan's code, by index of Plan.kernels; null if the plan has no code.
using KernelTable = std::vector<KernelFunction>;

class Device {
public:
  virtual ~Device() = default;
  /// Creates the Op of a step that is neither a message nor a collective. `kernels` must outlive it.
  virtual std::unique_ptr<Op> prepare(const plan::Step &step, SlotScope &scope, const KernelTable &kernels) = 0;
  /// Scratch memory that the Ops prepared so far need; used by one at a time.
  virtual size_t workspaceBytes() const { return 0; }
  /// Sets the 64-byte aligned workspace of all Ops. Call after the last prepare and before the first run.
  virtual void setWorkspace(std::byte *memory) {}
};

/// Creates a device in host memory. "cpu": oneDNN and our own loops on `threads` threads; `tuning`, used while Ops are
/// made, has the choices among several ways to compute a step (null: they are made by rule). "reference": plain loops in
/// double, one thread. Throws a user error for other names. ("cuda" has separate memory: runtime/cuda.)
std::unique_ptr<Device> makeDevice(const std::string &name, unsigned threads, Tuning *tuning = nullptr);

} // namespace cleave
