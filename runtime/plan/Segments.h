// When the segments of an iteration run.
#pragma once
#include "runtime/plan/plan_generated.h"

namespace cleave {

/// The order of segments in a program's list of actions. Those of one phase may alternate.
enum class SegmentPhase : uint8_t { Begin, Weights, ReduceWeights, Microbatches, Reduce, Update };

inline SegmentPhase phaseOf(plan::SegmentKind kind) {
  switch (kind) {
  case plan::SegmentKind::Begin:
    return SegmentPhase::Begin;
  case plan::SegmentKind::Weights:
    return SegmentPhase::Weights;
  case plan::SegmentKind::ReduceWeights:
    return SegmentPhase::ReduceWeights;
  case plan::SegmentKind::Forward:
  case plan::SegmentKind::Backward:
  case plan::SegmentKind::InputGradient:
  case plan::SegmentKind::WeightGradient:
  case plan::SegmentKind::Eval:
    return SegmentPhase::Microbatches;
  case plan::SegmentKind::Reduce:
    return SegmentPhase::Reduce;
  case plan::SegmentKind::Update:
    return SegmentPhase::Update;
  }
  return SegmentPhase::Microbatches; // a kind that the checker refuses
}

/// Whether a segment runs for each microbatch; the others run once for all stages of a rank.
inline bool perMicrobatch(plan::SegmentKind kind) {
  const SegmentPhase phase = phaseOf(kind);
  return phase == SegmentPhase::Weights || phase == SegmentPhase::Microbatches;
}

} // namespace cleave
