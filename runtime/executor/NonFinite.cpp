// Finds the origin of a NaN or infinity.
#include "runtime/executor/NonFinite.h"

#include "runtime/plan/DTypes.h"
#include "runtime/plan/Text.h"

#include <cmath>
#include <fmt/format.h>

namespace cleave {

void NonFiniteSearch::begin(int64_t step) {
  trainingStep = step;
  sequence = 0;
  if (lasting)
    return;
  nan.reset();
  infinity.reset();
}

/// Calls fn(first byte) for every run of a window's bytes.
template <class F> static void forEachRun(const check::Access &access, size_t depth, uint64_t begin, const F &fn) {
  if (depth == 0) {
    fn(begin);
    return;
  }
  const check::Access::Repeat &repeat = access.repeats[depth - 1];
  for (uint64_t i = 0; i < repeat.count; ++i)
    forEachRun(access, depth - 1, begin + i * repeat.stride, fn);
}

NonFiniteSearch::Found NonFiniteSearch::look(const check::Access &access, const ResolvedAction &action,
                                             SlotTable table) const {
  Found found;
  const plan::Slot &slot = *program.slots()->Get(access.slot);
  const plan::DType type = slot.dtype();
  if (type != plan::DType::F32 && type != plan::DType::BF16 && type != plan::DType::F16)
    return found;
  const auto width = static_cast<uint64_t>(dtypeSize(type));
  const uint64_t run = access.repeats.empty() ? access.bytes : access.run;
  const std::byte *memory = table[action.segment->scope->local(access.slot)];
  forEachRun(access, access.repeats.size(), access.begin, [&](uint64_t begin) {
    for (uint64_t at = begin; at + width <= begin + run && at + width <= slot.bytes(); at += width) {
      const double value = loadElement(memory + at, 0, type);
      found.nan |= std::isnan(value);
      found.infinity |= std::isinf(value);
    }
  });
  return found;
}

/// The order of segments within an iteration, as far as it is the same on all ranks.
static int64_t phaseOf(plan::SegmentKind kind) {
  switch (kind) {
  case plan::SegmentKind::Begin:
  case plan::SegmentKind::Weights:
  case plan::SegmentKind::ReduceWeights:
  case plan::SegmentKind::Forward:
  case plan::SegmentKind::Eval:
    return 0;
  case plan::SegmentKind::Backward:
  case plan::SegmentKind::InputGradient:
  case plan::SegmentKind::WeightGradient:
    return 1;
  default:
    return 2;
  }
}

void NonFiniteSearch::note(std::optional<NonFinite> &first, const ResolvedAction &action, const std::string &what) {
  if (first)
    return;
  const plan::Segment &segment = *action.segment->info;
  const int64_t phase = phaseOf(segment.kind()), stage = segment.stage() < 0 ? program.stage() : segment.stage();
  first = {trainingStep, phase, action.microbatch, phase == 1 ? -stage : stage, sequence, what};
}

/// Whether the slot is a parameter, buffer or state: its values are the initial state of the next iteration.
bool NonFiniteSearch::outlivesIteration(uint32_t index) const {
  const plan::Slot &slot = *program.slots()->Get(index);
  if (slot.space() != plan::Space::Persistent || slot.tensor() < 0)
    return false;
  const plan::TensorKind kind = plan.tensors()->Get(static_cast<uint32_t>(slot.tensor()))->kind();
  return kind == plan::TensorKind::Parameter || kind == plan::TensorKind::Buffer || kind == plan::TensorKind::State;
}

std::string NonFiniteSearch::describe(const plan::Step &step) const {
  const std::string path = pathOf(plan, step);
  const uint32_t location = step.location();
  const std::string place =
      plan.strings() && location < plan.strings()->size() ? plan.strings()->Get(location)->str() : "";
  return fmt::format("{} ({}{}{})", path.empty() ? "the model" : path, place, place.empty() ? "" : ", ",
                     EnumNameStepOp(step.op_type()));
}

void NonFiniteSearch::before(const ResolvedAction &action, uint32_t index, SlotTable table) {
  read = {};
  ++sequence;
  check::forEachAccess(*action.segment->info->steps()->Get(index), program, [&](const check::Access &access) {
    if (access.kind != check::Access::Read)
      return;
    const Found found = look(access, action, table);
    read.nan |= found.nan;
    read.infinity |= found.infinity;
    const plan::Slot &slot = *program.slots()->Get(access.slot);
    if (slot.space() != plan::Space::Input || (!found.nan && !found.infinity))
      return;
    const std::string field = text(slot.name());
    note(found.nan ? nan : infinity, action, fmt::format("the data's field {}", field));
  });
}

void NonFiniteSearch::after(const ResolvedAction &action, uint32_t index, SlotTable table) {
  const plan::Step &step = *action.segment->info->steps()->Get(index);
  // A fill writes intended constants; the content of a message or collective was produced elsewhere.
  const bool brings = step.op_type() == plan::StepOp::Fill || step.op_type() == plan::StepOp::Recv;
  check::forEachAccess(step, program, [&](const check::Access &access) {
    if (access.kind != check::Access::Write)
      return;
    const Found found = look(access, action, table);
    if (!found.nan && !found.infinity)
      return;
    lasting |= outlivesIteration(access.slot);
    if (brings)
      return;
    const std::string what = describe(step);
    if (found.nan && !read.nan)
      note(nan, action, what);
    if (found.infinity && !read.nan && !read.infinity)
      note(infinity, action, what);
  });
}

} // namespace cleave
