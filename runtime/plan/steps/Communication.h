// Collectives and messages.
#pragma once
#include "runtime/base/Mesh.h"
#include "runtime/plan/steps/Describe.h"

namespace cleave::steps {

// ---- Collective ---------------------------------------------------------------------------------------------------

/// Whether the members' shares of the whole are listed.
inline bool hasShares(const plan::Collective &op) {
  return op.kind() == plan::CollectiveKind::AllGather || op.kind() == plan::CollectiveKind::ReduceScatter;
}

/// Elements of a buffer; where it is cut into shares, of all of them.
inline uint64_t elementsOf(const plan::Collective &op, const plan::CollectiveBuffer &buffer) {
  if (!hasShares(op))
    return static_cast<uint64_t>(buffer.count());
  int64_t shares = 0;
  for (uint32_t m = 0; m < length(buffer.sizes()); ++m)
    shares += buffer.sizes()->Get(m);
  return elements({shares, buffer.outer(), buffer.inner()});
}

/// Bytes of all buffers.
inline uint64_t bytesOf(const plan::Collective &op) {
  uint64_t elements = 0;
  for (uint32_t i = 0; i < length(op.buffers()); ++i)
    elements += elementsOf(op, *op.buffers()->Get(i));
  return elements * dtypeSize(op.dtype());
}

/// Whether the members hold the same layers, split in the same way, for other rows of the batch.
inline bool amongReplicas(const plan::Collective &op, const plan::Plan &plan) {
  return length(op.axes()) > 0 && std::ranges::all_of(*op.axes(), [&](uint32_t axis) {
           return roleOf(plan.mesh()->Get(axis)->name()->string_view()) == AxisRole::Data;
         });
}

/// The group must extend over the axes named by the graph, not only over the same number of ranks.
inline std::string axesProblem(const plan::Collective &op, const Context &c) {
  std::string axes;
  for (uint32_t i = 0; i < length(op.axes()); ++i)
    axes += (i ? "+" : "") + c.plan.mesh()->Get(op.axes()->Get(i))->name()->str();
  const auto *along = c.rank ? c.plan.groups()->Get(c.rank->groups()->Get(op.group()))->axis() : nullptr;
  return !c.rank || (along && along->string_view() == axes)
             ? ""
             : fmt::format("over '{}', group {} of the rank is along '{}'", axes, op.group(), cleave::text(along));
}

inline Defect problem(const plan::Collective &op, const Context &c) {
  if (std::string problem = axesProblem(op, c); !problem.empty())
    return problem;
  const uint32_t members = c.rank ? length(c.plan.groups()->Get(c.rank->groups()->Get(op.group()))->ranks()) : 0;
  for (uint32_t i = 0; i < length(op.buffers()); ++i) {
    const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
    if (!sane({b.outer(), b.inner()}))
      return fmt::format("outer {}, inner {}", b.outer(), b.inner());
    if (hasShares(op) && c.rank && length(b.sizes()) != members)
      return fmt::format("{} shares for {} members", length(b.sizes()), members);
    int64_t total = 0;
    for (uint32_t m = 0; m < length(b.sizes()); ++m) {
      if (!sane({b.sizes()->Get(m), b.outer(), b.inner()}))
        return fmt::format("a share of {}", b.sizes()->Get(m));
      total += b.sizes()->Get(m);
      if (!sane({total, b.outer(), b.inner()}))
        return fmt::format("shares of {} in all", total);
    }
    if (std::string problem = typeProblem(c, op.dtype(), {b.in(), b.out()}); !problem.empty())
      return problem;
    if (op.kind() == plan::CollectiveKind::AllToAll && members && b.count() % members)
      return fmt::format("{} elements in {} equal blocks", b.count(), members);
  }
  return {};
}

/// A collective must use all elements of its slots, and a member's own share must be all of its slot. Requires that
/// problem() and the bounds of slots are satisfied.
inline std::string shareProblem(const plan::Collective &op, const Context &c) {
  if (length(op.buffers()) == 0)
    return "a collective of no buffers";
  const bool gather = op.kind() == plan::CollectiveKind::AllGather,
             scatter = op.kind() == plan::CollectiveKind::ReduceScatter;
  for (const plan::CollectiveBuffer *b : *op.buffers()) {
    const uint64_t moved = elementsOf(op, *b);
    if (!scatter && c.elements(b->out()) != moved)
      return fmt::format("gives {} elements to slot {} of {}", moved, b->out(), c.elements(b->out()));
    if (!gather && c.elements(b->in()) != moved)
      return fmt::format("takes {} elements of slot {} of {}", moved, b->in(), c.elements(b->in()));
  }
  if (!c.rank || !hasShares(op))
    return "";
  const auto *ranks = c.plan.groups()->Get(c.rank->groups()->Get(op.group()))->ranks();
  const auto me = static_cast<uint32_t>(std::find(ranks->begin(), ranks->end(), c.rankIndex) - ranks->begin());
  for (uint32_t i = 0; me < ranks->size() && i < length(op.buffers()); ++i) {
    const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
    const uint64_t bytes = elements({b.sizes()->Get(me), b.outer(), b.inner()}) * dtypeSize(op.dtype());
    const uint32_t slot = gather ? b.in() : b.out();
    if (bytes != c.elements(slot) * dtypeSize(op.dtype()))
      return fmt::format("a share of {} bytes in slot {} of {}", bytes, slot, c.slot(slot).bytes());
  }
  return "";
}

/// A member's own share is the content of its slot; its size is checked together with the group.
inline void accesses(const plan::Collective &op, const Accesses &a) {
  for (uint32_t i = 0; i < length(op.buffers()); ++i) {
    const plan::CollectiveBuffer &b = *op.buffers()->Get(i);
    const uint64_t all = elementsOf(op, b);
    const auto own = [&](uint32_t slot) { return std::min(a.slotBytes(slot) / a.elementBytes(slot), all); };
    const int part = static_cast<int>(i);
    a.read(b.in(), op.kind() == plan::CollectiveKind::AllGather ? own(b.in()) : all, part);
    a.write(b.out(), op.kind() == plan::CollectiveKind::ReduceScatter ? own(b.out()) : all, part);
  }
}

/// Handled as an exchange of values that are partial (CheckPartials.cpp).
inline bool isLinear(const plan::Collective &) { return false; }

inline Work work(const plan::Collective &, const Context &) { return {}; }
inline OnGpu onGpu(const plan::Collective &) { return {.library = OnGpu::Nccl, .stream = 1}; }

inline std::string text(const plan::Collective &op, const plan::Plan &) {
  std::string buffers;
  for (uint32_t i = 0; i < length(op.buffers()); ++i)
    buffers += fmt::format("{}%{} -> %{}", i ? ", " : "", op.buffers()->Get(i)->in(), op.buffers()->Get(i)->out());
  return fmt::format("{} group {} {} {} {}", EnumNameCollectiveKind(op.kind()), op.group(),
                     EnumNameReduceKind(op.reduce()), dtypeName(op.dtype()), buffers);
}

// ---- Send, Recv ---------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Send &, const Context &) { return {}; }
inline void accesses(const plan::Send &op, const Accesses &a) { a.fn({Access::Read, op.slot(), 0, op.bytes()}); }
inline bool isLinear(const plan::Send &) { return false; }
inline Work work(const plan::Send &, const Context &) { return {}; }
inline OnGpu onGpu(const plan::Send &op) { return {.library = OnGpu::Nccl, .stream = 2 + 2 * op.peer()}; }
inline std::string text(const plan::Send &op, const plan::Plan &) {
  return fmt::format("send %{} ({} bytes) to peer {} tag {}", op.slot(), op.bytes(), op.peer(), op.tag());
}

inline Defect problem(const plan::Recv &, const Context &) { return {}; }
inline void accesses(const plan::Recv &op, const Accesses &a) { a.fn({Access::Write, op.slot(), 0, op.bytes()}); }
inline bool isLinear(const plan::Recv &) { return false; }
inline Work work(const plan::Recv &, const Context &) { return {}; }
inline OnGpu onGpu(const plan::Recv &op) { return {.library = OnGpu::Nccl, .stream = 3 + 2 * op.peer()}; }
inline std::string text(const plan::Recv &op, const plan::Plan &) {
  return fmt::format("recv %{} ({} bytes) from peer {} tag {}", op.slot(), op.bytes(), op.peer(), op.tag());
}

} // namespace cleave::steps
