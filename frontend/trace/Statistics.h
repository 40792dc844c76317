// For compositions that compute in f32 under mixed precision (passes/precision), as single ops do. They convert their
// input with `inSingle` and their result with `asActivation`. Both are removed in full precision.
#pragma once
#include "frontend/trace/Trace.h"

namespace cleave {

/// x in f32, whatever its type.
Tensor inSingle(Tensor x, Where where);

/// Marks x as an activation, which may be stored in the half type again.
Tensor asActivation(Tensor x, Where where);

} // namespace cleave
