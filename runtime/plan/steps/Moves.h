// Copies, fills and random numbers.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/steps/Describe.h"

namespace cleave::steps {

// ---- Copy ---------------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Copy &op, const Context &) {
  const std::string problem = viewProblem(op.src(), length(op.shape()));
  return problem.empty() ? viewProblem(op.dst(), length(op.shape())) : problem;
}

/// A copy with a start from the rank's table must stay inside its slot on every rank. Requires valid views.
inline std::string startProblem(const plan::Copy &op, const Context &c) {
  if (op.src_offset_scalar() == -1)
    return "";
  unsigned __int128 last = 0;
  for (uint32_t d = 0; d < length(op.shape()); ++d) {
    if (op.shape()->Get(d) == 0)
      return "";
    last += static_cast<unsigned __int128>(op.shape()->Get(d) - 1) *
            static_cast<unsigned __int128>(op.src()->strides()->Get(d));
  }
  const plan::Slot &source = c.slot(op.src()->slot());
  if (op.src()->offset() > source.bytes())
    return fmt::format("a source that begins at byte {} of {}", op.src()->offset(), source.bytes());
  const uint64_t elements = (source.bytes() - op.src()->offset()) / dtypeSize(op.dtype());
  for (const plan::Rank *each : *c.plan.ranks()) {
    if (each->program() != c.index)
      continue;
    const int64_t start = each->scalars()->Get(static_cast<uint32_t>(op.src_offset_scalar()));
    if (start < 0 || static_cast<uint64_t>(start) >= elements || last >= elements - static_cast<uint64_t>(start))
      return fmt::format("a source that begins at element {} of {}", start, elements);
  }
  return "";
}

inline void accesses(const plan::Copy &op, const Accesses &a) {
  const std::vector<int64_t> sizes = listOf(op.shape());
  if (op.src_offset_scalar() >= 0) // the start differs between ranks
    a.whole(Access::Read, op.src()->slot());
  else
    a.window(Access::Read, op.src(), sizes, dtypeSize(op.dtype()));
  a.window(Access::Write, op.dst(), sizes, dtypeSize(op.dtype()));
}

inline bool isLinear(const plan::Copy &) { return true; }

inline Work work(const plan::Copy &op, const Context &) {
  double elements = 2;
  for (uint32_t d = 0; d < length(op.shape()); ++d)
    elements *= static_cast<double>(op.shape()->Get(d));
  return moving(WorkClass::Copy, elements * sizeOf(op.dtype()));
}

inline OnGpu onGpu(const plan::Copy &) { return {}; }

inline std::string text(const plan::Copy &op, const plan::Plan &) {
  return fmt::format("copy {} -> {} [{}]", viewText(op.src()), viewText(op.dst()), fmt::join(listOf(op.shape()), ", "));
}

// ---- Fill ---------------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Fill &op, const Context &c) { return typeProblem(c, op.dtype(), {op.dst()}); }
inline void accesses(const plan::Fill &op, const Accesses &a) { a.whole(Access::Write, op.dst()); }
inline bool isLinear(const plan::Fill &) { return false; }
inline Work work(const plan::Fill &op, const Context &c) { return moving(WorkClass::Stream, c.bytes(op.dst())); }
inline OnGpu onGpu(const plan::Fill &) { return {}; }
inline std::string text(const plan::Fill &op, const plan::Plan &) {
  return fmt::format("fill %{} with {}", op.dst(), op.value());
}

// ---- Random -------------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Random &op, const Context &c) {
  if (std::string problem = typeProblem(c, op.dtype(), {op.out()}); !problem.empty())
    return problem;
  const bool numbers = op.dtype() <= plan::DType::BF16;
  if (numbers ? op.at_least() != 0 : op.dtype() != plan::DType::I1)
    return fmt::format("random numbers of type {} with at_least {}", dtypeName(op.dtype()), op.at_least());
  if (!c.rank)
    return "";
  const plan::Slot &slot = c.slot(op.out());
  const std::vector<uint32_t> coords(c.rank->coords()->begin(), c.rank->coords()->end());
  try {
    uint64_t bytes = dtypeSize(op.dtype());
    for (int64_t size : localShape(slot.sharding(), listOf(op.shape()), meshSizes(c.plan), coords))
      bytes *= static_cast<uint64_t>(size);
    return bytes > slot.bytes() ? fmt::format("draws {} bytes into a slot of {}", bytes, slot.bytes()) : "";
  } catch (const Error &error) {
    return error.what();
  }
}

inline void accesses(const plan::Random &op, const Accesses &a) { a.whole(Access::Write, op.out()); }
inline bool isLinear(const plan::Random &) { return false; }
/// Each element costs as much as a number in f32.
inline Work work(const plan::Random &op, const Context &c) {
  return moving(WorkClass::Random, c.bytes(op.out()) / sizeOf(op.dtype()) * sizeof(float));
}
inline OnGpu onGpu(const plan::Random &) { return {}; }
inline std::string text(const plan::Random &op, const plan::Plan &) {
  return fmt::format("random{}{} -> %{}", op.dtype() == plan::DType::I1 ? fmt::format(" >= {}", op.at_least()) : "",
                     op.shared() ? ", shared by all samples" : "", op.out());
}

} // namespace cleave::steps
