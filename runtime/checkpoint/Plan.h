// What a checkpoint needs to know of a plan: which persistent slots of a rank hold tensors that are saved.
#pragma once
#include "runtime/plan/PlanTypes.h"
#include "runtime/plan/Slices.h"

#include <string>
#include <vector>

namespace cleave {

const plan::Program &programOf(const plan::Plan &plan, unsigned rank);
/// Persistent slots (index of Program.slots) of parameters, buffers and states, of their tensors' type. One slot a
/// tensor: the first.
std::vector<uint32_t> savedSlots(const plan::Plan &plan, unsigned rank);
/// The boxes of its global tensor that a slot holds.
std::vector<Box> slotBoxes(const plan::Plan &plan, unsigned rank, unsigned slot);
std::vector<int64_t> slotShape(const plan::Plan &plan, unsigned rank, unsigned slot);
std::vector<int64_t> tensorShape(const plan::Tensor &tensor);
/// A plan type as safetensors names it.
std::string safetensorsName(plan::DType type);

} // namespace cleave
