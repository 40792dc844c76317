// A value that is still to be reduced may be copied, sent, and used linearly, as long as what comes out is still marked
// as partial over the same axes; a reducing collective over a group removes the axes along which the group extends.
// Slots without a sharding say nothing and are passed over.
#include "runtime/plan/CheckParts.h"

#include <algorithm>
#include <set>

namespace cleave::check {

namespace {

using Axes = std::set<uint32_t>;

/// Axes of more than one member over which a slot is partial.
Axes partialAxes(const plan::Plan &plan, const plan::Slot &slot) {
  Axes axes;
  const auto *list = slot.sharding() ? slot.sharding()->partial_axes() : nullptr;
  for (uint32_t i = 0; i < length(list); ++i)
    if (plan.mesh()->Get(list->Get(i))->size() > 1)
      axes.insert(list->Get(i));
  return axes;
}

/// Axes along which the members of a group differ.
Axes groupAxes(const plan::Plan &plan, const plan::Group &group) {
  Axes axes;
  const auto *first = plan.ranks()->Get(group.ranks()->Get(0))->coords();
  for (uint32_t rank : *group.ranks())
    for (uint32_t a = 0; a < first->size(); ++a)
      if (plan.ranks()->Get(rank)->coords()->Get(a) != first->Get(a))
        axes.insert(a);
  return axes;
}

bool covers(const Axes &all, const Axes &some) { return std::includes(all.begin(), all.end(), some.begin(), some.end()); }

std::string names(const plan::Plan &plan, const Axes &axes) {
  std::vector<std::string> list;
  for (uint32_t a : axes)
    list.push_back(plan.mesh()->Get(a)->name() ? plan.mesh()->Get(a)->name()->str() : fmt::format("{}", a));
  return fmt::format("{}", fmt::join(list, "+"));
}

class PartialCheck {
public:
  PartialCheck(const plan::Plan &plan, uint32_t index, const plan::Rank &rank, Report &report)
      : plan(plan), index(index), program(*plan.programs()->Get(index)), rank(rank), report(report) {}

  void run() {
    for (uint32_t s = 0; s < length(program.segments()); ++s)
      for (uint32_t i = 0; i < length(program.segments()->Get(s)->steps()) && !report.full(); ++i) {
        const plan::Step &step = *program.segments()->Get(s)->steps()->Get(i);
        if (const auto *collective = step.op_as_Collective())
          checkCollective(*collective, placeOf(index, program, s, i));
        else
          checkStep(step, placeOf(index, program, s, i));
      }
  }

private:
  Axes of(uint32_t slot) const { return partialAxes(plan, *program.slots()->Get(slot)); }
  bool known(uint32_t slot) const { return program.slots()->Get(slot)->sharding() != nullptr; }

  void checkCollective(const plan::Collective &op, const std::string &place) {
    bool reduces = op.kind() == plan::CollectiveKind::AllReduce || op.kind() == plan::CollectiveKind::ReduceScatter;
    Axes removed = reduces ? groupAxes(plan, *plan.groups()->Get(rank.groups()->Get(op.group()))) : Axes{};
    for (uint32_t i = 0; i < length(op.buffers()); ++i) {
      const plan::CollectiveBuffer &buffer = *op.buffers()->Get(i);
      Axes before = of(buffer.in()), after;
      if (before.empty() || buffer.in() == buffer.out() || !known(buffer.out()))
        continue;
      if (reduces && program.slots()->Get(buffer.in())->sharding()->partial_kind() != op.reduce())
        report.add("{}: reduces slot {} by {}, which is partial by {}", place, buffer.in(),
                   EnumNameReduceKind(op.reduce()),
                   EnumNameReduceKind(program.slots()->Get(buffer.in())->sharding()->partial_kind()));
      std::set_difference(before.begin(), before.end(), removed.begin(), removed.end(), std::inserter(after, after.end()));
      if (!covers(of(buffer.out()), after))
        report.add("{}: slot {} is partial over {}, the group reduces {}, slot {} is said to be whole", place,
                   buffer.in(), names(plan, before), removed.empty() ? "nothing" : names(plan, removed), buffer.out());
    }
  }

  /// Steps that are linear in what they read, so partial in gives partial out.
  static bool linear(const plan::Step &step) {
    switch (step.op_type()) {
    case plan::StepOp::Matmul:
    case plan::StepOp::Conv:
    case plan::StepOp::Kernel:
    case plan::StepOp::Copy:
    case plan::StepOp::EmbeddingGrad:
    case plan::StepOp::Embedding:
    case plan::StepOp::Gather:
    case plan::StepOp::ScatterAdd:
      return true;
    case plan::StepOp::Pool:
      return step.op_as_Pool()->kind() != plan::PoolKind::MaxForward;
    default:
      return false;
    }
  }

  void checkStep(const plan::Step &step, const std::string &place) {
    if (step.op_type() == plan::StepOp::Send)
      return;
    Axes read;
    std::set<uint32_t> partialReads, written;
    bool unknownWrites = false;
    forEachAccess(step, program, [&](const Access &access) {
      if (access.kind == Access::Write)
        written.insert(access.slot);
      else if (access.kind == Access::Unknown)
        unknownWrites = true;
      else if (Axes axes = of(access.slot); !axes.empty()) {
        read.insert(axes.begin(), axes.end());
        partialReads.insert(access.slot);
      }
    });
    if (read.empty() || unknownWrites)
      return;
    if (!linear(step))
      return report.add("{}: reads slot {}, which is still partial over {}", place, *partialReads.begin(), names(plan, read));
    if (const auto *op = step.op_as_Matmul())
      if (op->a()->slot() != op->c()->slot() && !of(op->a()->slot()).empty() && !of(op->b()->slot()).empty())
        return report.add("{}: multiplies two partial values, slots {} and {}", place, op->a()->slot(), op->b()->slot());
    // A fused kernel may have unrelated outputs; one at least must carry what is partial.
    bool carried = false, said = false;
    for (uint32_t slot : written) {
      said = said || known(slot);
      carried = carried || !known(slot) || covers(of(slot), read);
    }
    if (said && !carried)
      report.add("{}: reads slot {}, still partial over {}, and writes slot {} as if it were whole", place,
                 *partialReads.begin(), names(plan, read), *written.begin());
  }

  const plan::Plan &plan;
  uint32_t index;
  const plan::Program &program;
  const plan::Rank &rank;
  Report &report;
};

} // namespace

void checkPartials(const plan::Plan &plan, Report &report) {
  std::set<uint32_t> done;
  for (uint32_t r = 0; r < length(plan.ranks()) && !report.full(); ++r) {
    const plan::Rank &rank = *plan.ranks()->Get(r);
    if (done.insert(rank.program()).second)
      PartialCheck(plan, rank.program(), rank, report).run();
  }
}

} // namespace cleave::check
