// Casts for functions composed of several ops that compute in f32 under mixed precision (passes/precision), as a single
// op would. They convert their input with `inSingle` and their result with `asActivation`. Both casts are removed in
// full precision.
#pragma once
#include "frontend/trace/Trace.h"

namespace cleave {

/// x in f32, whatever its type.
Tensor inSingle(Tensor x, Where where);

/// Marks x as an activation, which may be stored in the half type.
Tensor asActivation(Tensor x, Where where);

} // namespace cleave
