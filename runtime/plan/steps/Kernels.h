// Calls of generated kernels.
#pragma once
#include "runtime/plan/Backend.h"
#include "runtime/plan/Kernels.h"
#include "runtime/plan/steps/Describe.h"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace cleave::steps {

inline bool isCuda(const plan::Plan &plan) { return backendOf(plan) == Target::Kind::Cuda; }

/// How many arguments a kernel's declaration says that it writes.
inline uint32_t outputsOf(const plan::KernelInfo &kernel) {
  uint32_t outputs = 0;
  for (uint32_t i = 0; i < length(kernel.arguments()); ++i)
    outputs += kernel.arguments()->Get(i)->written();
  return outputs;
}

/// Bytes from the start of the slot to argument `index` of a call.
inline uint64_t offsetOf(const plan::Kernel &call, uint32_t index) {
  return index < length(call.offsets()) ? call.offsets()->Get(index) : 0;
}

/// Bytes that a call accesses of its argument `index`, from the start of the argument.
inline uint64_t argumentBytes(const plan::Plan &plan, const plan::Kernel &call, uint32_t index) {
  const plan::KernelArgument &a = *plan.kernels()->Get(call.kernel())->arguments()->Get(index);
  if (call.extent() == 0)
    return 0;
  const auto elements = static_cast<__int128>(a.base()) + static_cast<__int128>(a.per_extent()) * call.extent();
  const __int128 bytes = elements * static_cast<__int128>(dtypeSize(a.dtype()));
  return bytes < 0 ? 0 : static_cast<uint64_t>(std::min<__int128>(bytes, 2 * check::largest));
}

/// The arguments of a call as "%1, %2+64".
inline std::string argumentsText(const plan::Kernel &call) {
  std::string args;
  for (uint32_t i = 0; i < length(call.args()); ++i) {
    args += fmt::format("{}%{}", i ? ", " : "", call.args()->Get(i));
    if (const uint64_t offset = offsetOf(call, i))
      args += fmt::format("+{}", offset);
  }
  return args;
}

inline std::string launchText(const plan::KernelInfo &info, uint64_t blocks) {
  return fmt::format("{} blocks of {} threads, {} registers, {} bytes shared{}", blocks, info.threads(),
                     info.registers(), info.shared_bytes(),
                     info.spill_bytes() ? fmt::format(", {} bytes spilled", info.spill_bytes()) : "");
}

/// What was fused, as a comment.
inline std::string opsText(const plan::KernelInfo &info) {
  return length(info.ops()) ? "  ; " + info.ops()->str() : "";
}

// ---- Kernel -------------------------------------------------------------------------------------------------------

/// Compares a call with its kernel's declaration.
inline std::string callProblem(const plan::Kernel &call, const Context &c, bool batch) {
  const plan::KernelInfo &kernel = *c.plan.kernels()->Get(call.kernel());
  const std::string name = cleave::text(kernel.symbol());
  if (kernel.batch() != batch)
    return fmt::format("kernel {} must {}be in batch form here", call.kernel(), batch ? "" : "not ");
  if (call.outputs() > length(call.args()))
    return fmt::format("{} outputs of {} arguments", call.outputs(), length(call.args()));
  if (call.signature() != kernelSignature(kernel))
    return fmt::format("a call with signature {:016x} of kernel {} ({}), which has {:016x}", call.signature(),
                       call.kernel(), name, kernelSignature(kernel));
  if (length(call.args()) != length(kernel.arguments()) || call.outputs() != outputsOf(kernel) ||
      length(call.scalars()) != kernel.scalars())
    return fmt::format("{} arguments, {} outputs and {} scalars, kernel {} takes {}, {} and {}", length(call.args()),
                       call.outputs(), length(call.scalars()), name, length(kernel.arguments()), outputsOf(kernel),
                       kernel.scalars());
  if (kernel.extent() >= 0 && call.extent() != kernel.extent())
    return fmt::format("an extent of {}, kernel {} is for {}", call.extent(), name, kernel.extent());
  if (call.grain() != kernel.grain())
    return fmt::format("a grain of {}, kernel {} is cut by {}", call.grain(), name, kernel.grain());
  if (isCuda(c.plan) && call.blocks() < 1)
    return "a call of no blocks";
  if (length(call.offsets()) != 0 && length(call.offsets()) != length(call.args()))
    return fmt::format("{} offsets of {} arguments", length(call.offsets()), length(call.args()));
  for (uint32_t i = 0; i < length(call.args()); ++i) {
    const uint32_t at = call.args()->Get(i);
    const plan::Slot &slot = c.slot(at);
    if (slot.dtype() != kernel.arguments()->Get(i)->dtype())
      return fmt::format("argument {} is slot {} of {}, kernel {} takes {}", i, at, dtypeName(slot.dtype()), name,
                         dtypeName(kernel.arguments()->Get(i)->dtype()));
    const uint64_t offset = offsetOf(call, i), unit = isCuda(c.plan) ? 16 : dtypeSize(slot.dtype());
    if (offset % unit != 0)
      return fmt::format("argument {} begins at byte {} of slot {}, not at a multiple of {}", i, offset, at, unit);
    if (kernel.arguments()->Get(i)->written() && offset != 0)
      return fmt::format("writes from byte {} of slot {}", offset, at);
    const uint64_t written = argumentBytes(c.plan, call, i), whole = check::valueBytes(slot);
    if (kernel.arguments()->Get(i)->written() && written < whole)
      return fmt::format("writes {} bytes of slot {}, whose value has {}", written, at, whole);
  }
  return "";
}

inline Defect problem(const plan::Kernel &op, const Context &c) { return {callProblem(op, c, false), "S6"}; }

/// Reports the arguments from `first` to `end`.
inline void arguments(const plan::Kernel &op, uint32_t first, uint32_t end, const Accesses &a, int part = -1) {
  for (uint32_t i = first; i < end; ++i) {
    const uint32_t slot = op.args()->Get(i);
    const Access::Kind kind = op.outputs() == 0                       ? Access::Unknown
                              : i + op.outputs() >= length(op.args()) ? Access::Write
                                                                      : Access::Read;
    Access access{kind, slot, a.plan ? offsetOf(op, i) : 0, a.plan ? argumentBytes(*a.plan, op, i) : a.slotBytes(slot)};
    access.part = part;
    a.fn(access);
  }
}

inline void accesses(const plan::Kernel &op, const Accesses &a) { arguments(op, 0, length(op.args()), a); }

inline bool isLinear(const plan::Kernel &) { return true; }

/// How many of a kernel's ops evaluate a function for every element that takes longer than moving the element.
inline int functionsOf(const plan::KernelInfo &info) {
  static constexpr std::string_view names[] = {"exp",     "gelu", "gelu_grad", "tanh",
                                               "sigmoid", "silu", "silu_grad", "erf"};
  int count = 0;
  std::istringstream ops(info.ops() ? info.ops()->str() : "");
  for (std::string op; ops >> op;)
    count += std::ranges::find(names, op) != std::end(names);
  return count;
}

/// Bytes of every argument, counted once, as far as the kernel's code accesses it.
inline Work work(const plan::Kernel &op, const Context &c) {
  const plan::KernelInfo &info = *c.plan.kernels()->Get(op.kernel());
  double bytes = 0, elements = 0;
  for (uint32_t i = 0; i < length(op.args()); ++i) {
    const auto each = static_cast<double>(argumentBytes(c.plan, op, i));
    bytes += each;
    elements = std::max(elements, each / static_cast<double>(dtypeSize(info.arguments()->Get(i)->dtype())));
  }
  Work made = moving(WorkClass::Stream, bytes);
  made.functions = functionsOf(info) * elements;
  return made;
}

inline OnGpu onGpu(const plan::Kernel &) { return {}; }

inline std::string text(const plan::Kernel &op, const plan::Plan &plan) {
  const plan::KernelInfo &info = *plan.kernels()->Get(op.kernel());
  return fmt::format("kernel {}({}) {}{}", cleave::text(info.symbol()), argumentsText(op),
                     info.threads() ? launchText(info, op.blocks())
                                    : fmt::format("over {} by {}", op.extent(), op.grain()),
                     opsText(info));
}

// ---- KernelBatch --------------------------------------------------------------------------------------------------

/// The calls must have the same kernel and differ only in buffers and extents. That they do not overlap is checked in
/// CheckMemory.cpp.
inline Defect problem(const plan::KernelBatch &op, const Context &c) {
  constexpr uint64_t mostBlocks = (uint64_t{1} << 31) - 1; // maximum grid size of a GPU
  if (length(op.calls()) == 0)
    return {"a batch of no calls", "S6"};
  const plan::Kernel &first = *op.calls()->Get(0);
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < length(op.calls()); ++i) {
    const plan::Kernel &call = *op.calls()->Get(i);
    std::string problem = callProblem(call, c, isCuda(c.plan));
    if (problem.empty() && call.outputs() == 0)
      problem = "it does not say what it writes";
    if (problem.empty() && call.kernel() != first.kernel())
      problem = fmt::format("it is of kernel {}, the first of kernel {}", call.kernel(), first.kernel());
    if (problem.empty() && (length(call.args()) != length(first.args()) || call.outputs() != first.outputs() ||
                            length(call.scalars()) != length(first.scalars())))
      problem = fmt::format("{} arguments, {} outputs and {} scalars, the first has {}, {} and {}", length(call.args()),
                            call.outputs(), length(call.scalars()), length(first.args()), first.outputs(),
                            length(first.scalars()));
    if (!problem.empty())
      return {fmt::format("call {}: {}", i, problem), "S6"};
    blocks += std::max(1u, call.blocks());
  }
  return {blocks > mostBlocks ? fmt::format("{} blocks, at most {}", blocks, mostBlocks) : "", "S6"};
}

inline void accesses(const plan::KernelBatch &op, const Accesses &a) {
  for (bool write : {false, true})
    for (uint32_t i = 0; i < length(op.calls()); ++i) {
      const plan::Kernel &call = *op.calls()->Get(i);
      const uint32_t count = length(call.args()), inputs = count - std::min(call.outputs(), count);
      arguments(call, write ? inputs : 0, write ? count : inputs, a, static_cast<int>(i));
    }
}

inline bool isLinear(const plan::KernelBatch &) { return true; }

inline Work work(const plan::KernelBatch &op, const Context &c) {
  Work made = moving(WorkClass::Stream, 0);
  for (uint32_t i = 0; i < length(op.calls()); ++i) {
    const Work call = work(*op.calls()->Get(i), c);
    made.bytes += call.bytes;
    made.functions += call.functions;
  }
  return made;
}

inline OnGpu onGpu(const plan::KernelBatch &) { return {}; }

inline std::string text(const plan::KernelBatch &op, const plan::Plan &plan) {
  const plan::KernelInfo &info = *plan.kernels()->Get(op.calls()->Get(0)->kernel());
  uint64_t blocks = 0;
  for (const plan::Kernel *call : *op.calls())
    blocks += call->blocks();
  return fmt::format("kernel {} of {} calls, {}{}", cleave::text(info.symbol()), op.calls()->size(),
                     launchText(info, blocks), opsText(info));
}

} // namespace cleave::steps
