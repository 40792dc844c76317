// Checks that a list of actions is a training iteration: every segment runs once per microbatch, in order; every
// trained parameter is written completely, from its own gradient. CheckPartials.cpp checks that the
// gradient has been summed exactly once over every mesh axis; CheckMemory.cpp checks that its sum starts at 0.
#include "runtime/base/Schedules.h"
#include "runtime/plan/Segments.h"
#include "runtime/plan/Text.h"
#include "runtime/plan/check/Coverage.h"
#include "runtime/plan/check/Defects.h"

#include <algorithm>
#include <map>
#include <set>

namespace cleave::check {

namespace {

using Actions = flatbuffers::Vector<flatbuffers::Offset<plan::Action>>;

/// Sums must be added in this order: another order would round differently and update running statistics differently.
void checkOrder(const plan::Plan &plan, uint32_t p, const Actions *actions, const char *entry, Defects &defects) {
  Rule rule(defects, "G4");
  const plan::Program &program = *plan.programs()->Get(p);
  const std::string name = text(plan.schedule());
  std::map<uint32_t, int32_t> last;
  std::set<std::pair<int32_t, int32_t>> finished; // stages and microbatches with computed weight gradients
  SegmentPhase phase = SegmentPhase::Begin;
  for (uint32_t a = 0; a < length(actions); ++a) {
    const plan::Action &action = *actions->Get(a);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    if (length(segment.steps()) == 0)
      continue;
    if (phaseOf(segment.kind()) < phase)
      defects.add("program {}, {} action {}: segment {} ({}) runs too late", p, entry, a, action.segment(),
                  EnumNameSegmentKind(segment.kind()));
    phase = std::max(phase, phaseOf(segment.kind()));
    if (!perMicrobatch(segment.kind()))
      continue;
    if (segment.kind() == plan::SegmentKind::InputGradient && finished.count({segment.stage(), action.microbatch()}))
      defects.add("program {}, {} action {}: segment {} runs for microbatch {} after its weight gradients", p, entry, a,
                  action.segment(), action.microbatch());
    if (segment.kind() == plan::SegmentKind::WeightGradient)
      finished.insert({segment.stage(), action.microbatch()});
    const bool downwards = name == descendingSchedule && (segment.kind() == plan::SegmentKind::Backward ||
                                                          segment.kind() == plan::SegmentKind::InputGradient ||
                                                          segment.kind() == plan::SegmentKind::WeightGradient);
    const auto [found, fresh] = last.try_emplace(action.segment(), action.microbatch());
    if (!fresh && (downwards ? action.microbatch() > found->second : action.microbatch() < found->second))
      defects.add(
          "program {}, {} action {}: segment {} runs for microbatch {} after {}; under schedule \"{}\" they run {}", p,
          entry, a, action.segment(), action.microbatch(), found->second, name, downwards ? "downwards" : "upwards");
    found->second = action.microbatch();
  }
}

void checkRuns(const plan::Plan &plan, uint32_t p, const Actions *actions, const char *entry, Defects &defects) {
  Rule rule(defects, "G1");
  const plan::Program &program = *plan.programs()->Get(p);
  std::map<uint32_t, std::set<int32_t>> runs;
  for (uint32_t a = 0; a < length(actions); ++a) {
    const plan::Action &action = *actions->Get(a);
    const plan::Segment &segment = *program.segments()->Get(action.segment());
    if (length(segment.steps()) == 0)
      continue; // an action that only waits
    auto &of = runs[action.segment()];
    if (!of.insert(action.microbatch()).second || (!perMicrobatch(segment.kind()) && of.size() > 1))
      defects.add("program {}, {} action {}: segment {} runs again for microbatch {}", p, entry, a, action.segment(),
                  action.microbatch());
  }
  for (const auto &[s, of] : runs)
    if (perMicrobatch(program.segments()->Get(s)->kind()) && of.size() != std::max(1u, plan.microbatches()))
      defects.add("program {}, {}: segment {} runs for {} microbatches of {}", p, entry, s, of.size(),
                  plan.microbatches());
}

/// Follows gradients to the parameters that they update.
class UpdateCheck {
public:
  UpdateCheck(const plan::Plan &plan, uint32_t p, Defects &defects)
      : plan(plan), program(*plan.programs()->Get(p)), p(p), defects(defects), carried(length(program.slots())) {
    for (uint32_t i = 0; i < length(program.slots()); ++i) {
      const plan::Tensor *tensor = tensorOf(i);
      if (tensor && tensor->kind() == plan::TensorKind::Parameter && tensor->trainable() &&
          program.slots()->Get(i)->space() == plan::Space::Persistent)
        parameters[i] = {};
    }
  }

  void run() {
    Rule rule(defects, "G3");
    if (parameters.empty() || length(program.train()) == 0)
      return;
    for (uint32_t a = 0; a < length(program.train()); ++a) {
      const plan::Segment &segment = *program.segments()->Get(program.train()->Get(a)->segment());
      for (uint32_t i = 0; i < length(segment.steps()); ++i)
        visit(*segment.steps()->Get(i));
    }
    for (const auto &[slot, update] : parameters)
      conclude(slot, update);
  }

private:
  struct Update {
    Coverage written;
    bool moved = false;   ///< written from its own gradient or from a message
    bool without = false; ///< written from something else
  };

  const plan::Tensor *tensorOf(uint32_t slot) const {
    const int32_t tensor = program.slots()->Get(slot)->tensor();
    return tensor < 0 ? nullptr : plan.tensors()->Get(static_cast<uint32_t>(tensor));
  }

  uint64_t elementsOf(uint32_t slot) const { return check::elementsOf(*program.slots()->Get(slot)); }

  /// Calls of a batch, and buffers of a collective, are independent.
  void visit(const plan::Step &step) {
    std::map<int, std::vector<Access>> parts;
    forEachAccess(
        step, program, [&](const Access &access) { parts[access.part].push_back(access); }, &plan);
    const bool kernel = step.op_type() == plan::StepOp::Kernel || step.op_type() == plan::StepOp::KernelBatch;
    for (const auto &[part, accesses] : parts)
      carry(accesses, kernel, step.op_type() == plan::StepOp::Recv);
  }

  void carry(const std::vector<Access> &accesses, bool kernel, bool message) {
    for (const Access &write : accesses) {
      if (write.kind != Access::Write)
        continue;
      std::set<int32_t> from;
      for (const Access &read : accesses)
        if (read.kind == Access::Read &&
            (!kernel || elementsOf(read.slot) <= elementsOf(write.slot) || scalar(read.slot)))
          from.insert(carried[read.slot].begin(), carried[read.slot].end());
      const plan::Tensor *tensor = tensorOf(write.slot);
      if (tensor && tensor->kind() == plan::TensorKind::Gradient && tensor->parameter() >= 0)
        from.insert(tensor->parameter());
      if (auto found = parameters.find(write.slot); found != parameters.end()) {
        found->second.written.add(write);
        const bool own = message || from.count(program.slots()->Get(write.slot)->tensor());
        (own ? found->second.moved : found->second.without) = true;
      }
      carried[write.slot] = std::move(from);
    }
  }

  bool scalar(uint32_t slot) const { return elementsOf(slot) == 1; }

  void conclude(uint32_t slot, const Update &update) {
    const uint64_t bytes = valueBytes(*program.slots()->Get(slot));
    const std::string name = tensorOf(slot)->name() ? tensorOf(slot)->name()->str() : "";
    if (bytes && !update.moved && !update.without)
      defects.add("program {}: no step updates parameter {}, slot {}", p, name, slot);
    else if (bytes && update.without)
      defects.add("program {}: parameter {}, slot {}, is written from something that is not its gradient", p, name,
                  slot);
    else if (bytes && update.written.missing({Access::Read, slot, 0, bytes}, 0, bytes))
      defects.add("program {}: the update of parameter {}, slot {}, leaves byte {}", p, name, slot,
                  *update.written.missing({Access::Read, slot, 0, bytes}, 0, bytes));
  }

  const plan::Plan &plan;
  const plan::Program &program;
  uint32_t p;
  Defects &defects;
  std::vector<std::set<int32_t>> carried; ///< per slot: parameters whose gradients were used for it
  std::map<uint32_t, Update> parameters;  ///< by slot
};

} // namespace

void checkTraining(const plan::Plan &plan, Defects &defects) {
  for (uint32_t p = 0; p < length(plan.programs()) && !defects.full(); ++p) {
    const plan::Program &program = *plan.programs()->Get(p);
    checkRuns(plan, p, program.train(), "train", defects);
    checkRuns(plan, p, program.eval(), "eval", defects);
    checkOrder(plan, p, program.train(), "train", defects);
    checkOrder(plan, p, program.eval(), "eval", defects);
    UpdateCheck(plan, p, defects).run();
  }
}

} // namespace cleave::check
