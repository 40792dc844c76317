// The steps of an unpacked plan, by kind of operation and of segment.
#pragma once
#include "tests/plan_mutations/Kinds.h"

#include <functional>

namespace cleave::plan_mutations {

struct Place {
  plan::ProgramT *program;
  plan::SegmentT *segment;
  size_t index;
  plan::StepT &step() const { return *segment->steps[index]; }
};

inline bool runs(const plan::ProgramT &program, const plan::SegmentT &segment) {
  for (const auto *list : {&program.train, &program.eval})
    for (const auto &action : *list)
      if (program.segments[action->segment].get() == &segment)
        return true;
  return false;
}

/// The steps that some action runs and `accept` allows.
inline std::vector<Place> places(Altered &a, const std::function<bool(const Place &)> &accept) {
  std::vector<Place> found;
  for (auto &program : a.plan.programs)
    for (auto &segment : program->segments)
      for (size_t i = 0; i < segment->steps.size() && runs(*program, *segment); ++i)
        if (Place place{program.get(), segment.get(), i}; accept(place))
          found.push_back(place);
  return found;
}

/// A step's operation as an Op; null if it is of another kind.
template <typename Op> Op *as(plan::StepT &step) {
  return step.op.type == plan::StepOpUnionTraits<Op>::enum_value ? static_cast<Op *>(step.op.value) : nullptr;
}

/// Calls change on a random operation of type Op that `accept` allows. Returns false if there is none.
template <typename Op>
bool alter(Altered &a, const std::function<bool(Op &, const Place &)> &accept,
           const std::function<void(Op &, const Place &)> &change) {
  const auto found = places(a, [&](const Place &place) {
    Op *op = as<Op>(place.step());
    return op && accept(*op, place);
  });
  if (found.empty())
    return false;
  const Place place = found[a.below(found.size())];
  change(*as<Op>(place.step()), place);
  return true;
}

inline bool isKind(const Place &place, plan::SegmentKind kind) { return place.segment->kind == kind; }

inline plan::TensorKind kindOf(const Altered &a, const plan::SlotT &slot) {
  return slot.tensor < 0 ? plan::TensorKind::Activation : a.plan.tensors[static_cast<size_t>(slot.tensor)]->kind;
}

} // namespace cleave::plan_mutations
