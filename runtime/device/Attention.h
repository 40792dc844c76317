// Attention of f32 or bf16 without the matrix of scores: only those of a few rows exist at a time.
#pragma once
#include "runtime/device/Device.h"

namespace cleave {

struct Workspace;

/// An Op of attention or of its gradients (Dao, Fu, Ermon, Rudra, Re: FlashAttention, NeurIPS 2022; here the scores of
/// a block of rows to all keys are computed at once). Everything between operands and results is f32. What is summed,
/// and in which order, depends on shapes alone. Null if the plan is for processors without AVX2, or in f16.
std::unique_ptr<Op> makeAttention(const plan::Attention &op, SlotScope &scope, Workspace &workspace, unsigned threads);

} // namespace cleave
