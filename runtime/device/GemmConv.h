// Convolutions by the loops of matrix products (GemmKernels.h): a product for each element of the window, summed in
// registers, whose rows are pixels where they lie in memory.
#pragma once
#include "runtime/device/Device.h"

#include <memory>

namespace cleave::plan {
struct Conv;
} // namespace cleave::plan

namespace cleave {

struct Workspace;

/// Null if there are no loops for its types, its layout or the plan's processors.
std::unique_ptr<Op> makeGemmConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads);

} // namespace cleave
