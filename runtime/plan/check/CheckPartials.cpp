// A partial value may be copied, sent and used linearly if the result is marked as partial over the same axes. A
// reducing collective removes the axes of its group. A slot is partial as declared by its sharding when it is written;
// a reduction in place makes it whole until the next write, so actions are followed in order. A reduce segment creates
// no new partial values: its results are as partial as its inputs. Slots without a sharding are skipped.
#include "runtime/base/Mesh.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <set>

namespace cleave::check {

namespace {

/// A set of mesh axes, one bit each.
using Axes = uint32_t;

/// Axes with more than one member over which a slot is declared partial.
Axes declaredAxes(const plan::Plan &plan, const plan::Slot &slot) {
  Axes axes = 0;
  const auto *list = slot.sharding() ? slot.sharding()->partial_axes() : nullptr;
  for (uint32_t i = 0; i < length(list); ++i)
    if (plan.mesh()->Get(list->Get(i))->size() > 1)
      axes |= Axes{1} << list->Get(i);
  return axes;
}

std::string names(const plan::Plan &plan, Axes axes) {
  std::vector<std::string> list;
  for (uint32_t a = 0; a < length(plan.mesh()); ++a)
    if (axes >> a & 1)
      list.push_back(plan.mesh()->Get(a)->name() ? plan.mesh()->Get(a)->name()->str() : fmt::format("{}", a));
  return list.empty() ? "nothing" : fmt::format("{}", fmt::join(list, "+"));
}

/// The relevant properties of a step, computed once. Each call of a kernel batch is handled separately.
struct StepFacts {
  const plan::Step *step;
  uint32_t index; ///< of the step
  std::vector<uint32_t> reads, writes;
  bool unknownWrites = false;
};

class PartialCheck {
public:
  PartialCheck(const plan::Plan &plan, uint32_t index, const plan::Rank &rank, const std::vector<Axes> &axesOf,
               Defects &defects)
      : plan(plan), index(index), program(*plan.programs()->Get(index)), rank(rank), axesOf(axesOf), defects(defects) {
    for (uint32_t i = 0; i < length(program.slots()); ++i)
      declared.push_back(declaredAxes(plan, *program.slots()->Get(i)));
    for (uint32_t a = 0; a < length(plan.mesh()); ++a)
      if (roleOf(plan.mesh()->Get(a)->name()->string_view()) == AxisRole::Pipeline)
        stages |= Axes{1} << a;
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      segments.push_back(factsOf(*program.segments()->Get(s)));
  }

  void follow(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions) {
    current = declared;
    reduced.assign(declared.size(), 0);
    for (uint32_t a = 0; a < length(actions); ++a) {
      uint32_t segment = actions->Get(a)->segment();
      for (size_t i = 0; i < segments[segment].size() && !defects.full(); ++i)
        visit(segment, segments[segment][i]);
    }
    Rule rule(defects, "P3");
    for (uint32_t i = 0; i < length(program.metrics()) && length(actions) > 0; ++i)
      if (const uint32_t slot = program.metrics()->Get(i)->slot(); current[slot])
        defects.add("program {}: metric '{}', slot {}, is still partial over {} at the end", index,
                    program.metrics()->Get(i)->name()->str(), slot, names(plan, current[slot]));
  }

private:
  std::vector<StepFacts> factsOf(const plan::Segment &segment) const {
    std::vector<StepFacts> list;
    for (uint32_t i = 0; i < length(segment.steps()); ++i) {
      const plan::Step *step = segment.steps()->Get(i);
      const bool batch = step->op_type() == plan::StepOp::KernelBatch;
      const size_t first = list.size();
      list.resize(first + (batch ? length(step->op_as_KernelBatch()->calls()) : 1), {step, i, {}, {}});
      forEachAccess(
          *step, program,
          [&](const Access &access) {
            StepFacts &facts = list[first + (batch ? static_cast<size_t>(access.part) : 0)];
            (access.kind == Access::Write ? facts.writes : facts.reads).push_back(access.slot);
            facts.unknownWrites = facts.unknownWrites || access.kind == Access::Unknown;
          },
          &plan);
    }
    return list;
  }

  bool known(uint32_t slot) const { return program.slots()->Get(slot)->sharding() != nullptr; }
  std::string place(uint32_t segment, uint32_t step) const { return placeOf(index, program, segment, step); }

  void visit(uint32_t segment, const StepFacts &facts) {
    if (const auto *collective = facts.step->op_as_Collective())
      return checkCollective(*collective, segment, facts.index);
    if (facts.step->op_type() != plan::StepOp::Send)
      checkStep(facts, segment, facts.index);
    Axes partial = ~Axes(0);
    if (program.segments()->Get(segment)->kind() == plan::SegmentKind::Reduce && !facts.reads.empty()) {
      partial = 0;
      for (uint32_t slot : facts.reads)
        partial |= current[slot];
    }
    for (uint32_t slot : facts.writes) {
      current[slot] = declared[slot] & partial;
      reduced[slot] = 0;
    }
  }

  void checkCollective(const plan::Collective &op, uint32_t segment, uint32_t step) {
    bool reduces = op.kind() == plan::CollectiveKind::AllReduce || op.kind() == plan::CollectiveKind::ReduceScatter;
    Axes removed = reduces ? axesOf[rank.groups()->Get(op.group())] : 0;
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &buffer = *op.buffers()->Get(i);
      Axes before = current[buffer.in()], after = before & ~removed;
      if (reduces && (before & removed) && declaredKind(buffer.in()) != op.reduce())
        defects.add("{}: reduces slot {} by {}, which is partial by {}", place(segment, step), buffer.in(),
                    EnumNameReduceKind(op.reduce()), EnumNameReduceKind(declaredKind(buffer.in())));
      if (reduces)
        checkOnce(buffer, before, removed, segment, step);
      if (buffer.in() == buffer.out()) {
        current[buffer.out()] = after;
        continue;
      }
      if (known(buffer.out()) && (after & ~declared[buffer.out()]))
        defects.add("{}: slot {} is partial over {}, the group reduces {}, but slot {} is declared whole",
                    place(segment, step), buffer.in(), names(plan, before), names(plan, removed), buffer.out());
      current[buffer.out()] = declared[buffer.out()];
    }
  }

  /// Each axis must be summed exactly once. Stages that contribute nothing hold a zero that is not marked as partial.
  void checkOnce(const plan::CollectiveBuffer &buffer, Axes before, Axes removed, uint32_t segment, uint32_t step) {
    Rule rule(defects, "P2");
    if (reduced[buffer.in()] & removed)
      defects.add("{}: sums slot {} over {}, over which it has been summed", place(segment, step), buffer.in(),
                  names(plan, reduced[buffer.in()] & removed));
    else if (known(buffer.in()) && !(removed & stages) && (before & removed) != removed)
      defects.add("{}: sums slot {} over {}, which is partial over {}", place(segment, step), buffer.in(),
                  names(plan, removed), names(plan, before));
    reduced[buffer.out()] = reduced[buffer.in()] | removed;
  }

  plan::ReduceKind declaredKind(uint32_t slot) const { return program.slots()->Get(slot)->sharding()->partial_kind(); }

  void checkStep(const StepFacts &facts, uint32_t segment, uint32_t step) {
    Axes read = 0;
    uint32_t first = 0;
    for (uint32_t slot : facts.reads)
      if (current[slot]) {
        first = read ? first : slot;
        read |= current[slot];
      }
    if (!read || facts.unknownWrites)
      return;
    if (!steps::isLinear(*facts.step))
      return defects.add("{}: reads slot {}, which is still partial over {}", place(segment, step), first,
                         names(plan, read));
    if (const auto *op = facts.step->op_as_Matmul()) {
      if (op->aux() && op->epilogue() == plan::Epilogue::GeluGradient && current[op->aux()->slot()])
        return defects.add("{}: multiplies by a function of slot {}, which is still partial over {}",
                           place(segment, step), op->aux()->slot(), names(plan, current[op->aux()->slot()]));
      if (op->a()->slot() != op->c()->slot() && (current[op->a()->slot()] & current[op->b()->slot()]))
        return defects.add("{}: multiplies two partial values, slots {} and {}", place(segment, step), op->a()->slot(),
                           op->b()->slot());
    }
    // A fused kernel may have unrelated outputs; for each partial slot that it reads, at least one output must be
    // partial over the same axes.
    const auto carries = [&](Axes partial) {
      return std::any_of(facts.writes.begin(), facts.writes.end(),
                         [&](uint32_t slot) { return !known(slot) || !(partial & ~declared[slot]); });
    };
    const bool said = std::any_of(facts.writes.begin(), facts.writes.end(), [&](uint32_t slot) { return known(slot); });
    for (uint32_t slot : facts.reads)
      if (said && !carries(current[slot]))
        return defects.add("{}: reads slot {}, still partial over {}, and writes slot {} as if it were whole",
                           place(segment, step), slot, names(plan, current[slot]), facts.writes[0]);
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  const plan::Rank &rank;
  const std::vector<Axes> &axesOf; ///< of each group of the plan
  Defects &defects;
  std::vector<Axes> declared, current; ///< by slot
  std::vector<Axes> reduced;           ///< per slot: axes summed by collectives since the last write
  Axes stages = 0;                     ///< the axis of pipeline stages
  std::vector<std::vector<StepFacts>> segments;
};

} // namespace

void checkPartials(const plan::Plan &plan, Defects &defects) {
  Rule rule(defects, "P1");
  std::set<uint32_t> done;
  const std::vector<Axes> axes = groupAxes(plan);
  for (uint32_t r = 0; r < length(plan.ranks()) && !defects.full(); ++r) {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    if (!done.insert(rank.program()).second)
      continue;
    PartialCheck check(plan, rank.program(), rank, axes, defects);
    check.follow(plan.programs()->Get(rank.program())->train());
    check.follow(plan.programs()->Get(rank.program())->eval());
  }
}

} // namespace cleave::check
