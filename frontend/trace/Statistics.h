// Compositions whose inner values keep f32 under mixed precision (passes/precision), as the ops that are one piece do:
// their input is taken through `inSingle`, their result through `asActivation`. Both vanish in full precision.
#pragma once
#include "frontend/trace/Trace.h"

namespace cleave {

/// x, whatever type it gets, in f32 from here on.
Tensor inSingle(Tensor x, Where where);

/// x as an activation: its users may take it in the half type again.
Tensor asActivation(Tensor x, Where where);

} // namespace cleave
