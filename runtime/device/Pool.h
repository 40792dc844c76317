// Pooling of f32 or bf16 by loops of our own.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {

/// An Op of pooling or of its gradient, in any layout; without channels last, channels are computed one by one. A
/// window's largest element is the first of equal ones, or the last NaN, as in PyTorch. Throws for other element types.
std::unique_ptr<Op> makePool(const plan::Pool &op, SlotScope &scope, unsigned threads);

} // namespace cleave
