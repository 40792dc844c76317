// Reads and sums at indices.
#pragma once
#include "runtime/plan/Streams.h"
#include "runtime/plan/steps/Describe.h"

namespace cleave::steps {

/// `whole`, `picked`: the sizes of the tensor that is indexed, and of what is read from it or added to it.
inline Defect lookupProblem(const Context &c, plan::DType type, std::initializer_list<int64_t> whole,
                            std::initializer_list<int64_t> picked, std::initializer_list<int64_t> values,
                            int64_t indices) {
  return sane(whole) && sane(picked) ? typeProblem(c, type, values, {indices}) : "sizes out of range";
}

// ---- Embedding ----------------------------------------------------------------------------------------------------

inline Defect problem(const plan::Embedding &op, const Context &c) {
  return lookupProblem(c, op.dtype(), {op.rows(), op.width()}, {op.count(), op.width()}, {op.table(), op.out()},
                       op.ids());
}

inline void accesses(const plan::Embedding &op, const Accesses &a) {
  a.read(op.table(), elements({op.rows(), op.width()}));
  a.read(op.ids(), static_cast<uint64_t>(op.count()));
  a.write(op.out(), elements({op.count(), op.width()}));
}

inline bool isLinear(const plan::Embedding &) { return true; }

inline Work work(const plan::Embedding &op, const Context &) {
  return moving(WorkClass::Lookup, product({op.count(), op.width()}, 2) * sizeOf(op.dtype()));
}

inline OnGpu onGpu(const plan::Embedding &) { return {}; }

inline std::string text(const plan::Embedding &op, const plan::Plan &) {
  return fmt::format("embedding %{} of %{} -> %{}", op.ids(), op.table(), op.out());
}

// ---- EmbeddingGrad ------------------------------------------------------------------------------------------------

inline Defect problem(const plan::EmbeddingGrad &op, const Context &c) {
  return lookupProblem(c, op.dtype(), {op.rows(), op.width()}, {op.count(), op.width()}, {op.grad(), op.dtable()},
                       op.ids());
}

inline void accesses(const plan::EmbeddingGrad &op, const Accesses &a) {
  a.read(op.ids(), static_cast<uint64_t>(op.count()));
  a.read(op.grad(), elements({op.count(), op.width()}));
  a.result(op.dtable(), elements({op.rows(), op.width()}), op.accumulate());
}

inline bool isLinear(const plan::EmbeddingGrad &) { return true; }

/// The whole gradient of the table is written.
inline Work work(const plan::EmbeddingGrad &op, const Context &) {
  return moving(WorkClass::Lookup,
                (product({op.rows(), op.width()}) + product({op.count(), op.width()})) * sizeOf(op.dtype()));
}

inline OnGpu onGpu(const plan::EmbeddingGrad &op) {
  return {.workspace = lookupScratch(op.rows(), op.count()).bytes()};
}

inline std::string text(const plan::EmbeddingGrad &op, const plan::Plan &) {
  return fmt::format("embedding gradient %{} by %{} -> %{}", op.grad(), op.ids(), op.dtable());
}

// ---- Gather, ScatterAdd -------------------------------------------------------------------------------------------

template <typename Op>
concept Indexed = std::same_as<Op, plan::Gather> || std::same_as<Op, plan::ScatterAdd>;

inline Defect problem(const Indexed auto &op, const Context &c) {
  return lookupProblem(c, op.dtype(), {op.outer(), op.extent(), op.inner()}, {op.outer(), op.count(), op.inner()},
                       {op.src(), op.out()}, op.index());
}

template <Indexed Op> void accesses(const Op &op, const Accesses &a) {
  const uint64_t whole = elements({op.outer(), op.extent(), op.inner()}),
                 picked = elements({op.outer(), op.count(), op.inner()});
  constexpr bool adds = std::same_as<Op, plan::ScatterAdd>;
  a.read(op.src(), adds ? picked : whole);
  a.read(op.index(), picked);
  a.write(op.out(), adds ? whole : picked);
}

inline bool isLinear(const Indexed auto &) { return true; }

template <Indexed Op> Work work(const Op &op, const Context &) {
  const double picked = product({op.outer(), op.count(), op.inner()}),
               whole = product({op.outer(), op.extent(), op.inner()});
  constexpr bool adds = std::same_as<Op, plan::ScatterAdd>;
  return moving(WorkClass::Lookup, (adds ? whole + picked : 2 * picked) * sizeOf(op.dtype()) + picked * 4);
}

inline OnGpu onGpu(const Indexed auto &) { return {}; }

template <Indexed Op> std::string text(const Op &op, const plan::Plan &) {
  return fmt::format("{} %{} at %{} -> %{}", std::same_as<Op, plan::ScatterAdd> ? "scatter-add" : "gather", op.src(),
                     op.index(), op.out());
}

} // namespace cleave::steps
