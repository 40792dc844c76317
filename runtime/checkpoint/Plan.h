// The parts of a plan that a checkpoint stores: the persistent slots of a rank with saved tensors.
#pragma once
#include "runtime/plan/PlanTypes.h"
#include "runtime/plan/Slices.h"

#include <string>
#include <vector>

namespace cleave {

const plan::Program &programOf(const plan::Plan &plan, unsigned rank);
/// Persistent slots (indices of Program.slots) of parameters, buffers and states with their tensor's type. Only the
/// first slot of each tensor.
std::vector<uint32_t> savedSlots(const plan::Plan &plan, unsigned rank);
/// The boxes of the global tensor that a slot holds.
std::vector<Box> slotBoxes(const plan::Plan &plan, unsigned rank, unsigned slot);
std::vector<int64_t> slotShape(const plan::Plan &plan, unsigned rank, unsigned slot);
std::vector<int64_t> tensorShape(const plan::Tensor &tensor);
/// A plan's element type in safetensors' notation.
std::string safetensorsName(plan::DType type);

} // namespace cleave
