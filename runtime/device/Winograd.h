// Convolutions with 3x3 or 5x5 windows and stride 1 by Winograd's method: down to a quarter of the multiplications.
#pragma once
#include "runtime/device/Device.h"

#include <memory>

namespace cleave::plan {
struct Conv;
} // namespace cleave::plan

namespace cleave {

struct Workspace;

/// An Op of a convolution of any kind whose step allows Winograd's method, by F(4x4, 3x3) or F(2x2, 5x5). Null if there
/// is none: the activations are not nhwc, the channels are no multiples of 16, the plan is for processors without AVX2,
/// or the types are neither f32 nor bf16.
///
/// Rounding: everything between the operands and the result is f32, also for operands in bf16. With normal numbers the
/// root mean square of the errors is 4 times that of sums in f32, 1.7e-6 of the results' deviation with 64 channels
/// and 4.4e-6 with 512; the largest error is 6 times as large. A NaN or an infinity reaches all outputs of its tiles,
/// not only those whose windows contain it.
std::unique_ptr<Op> makeWinogradConv(const plan::Conv &op, SlotScope &scope, Workspace &workspace, unsigned threads);

} // namespace cleave
