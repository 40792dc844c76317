// The parts of a plan that a checkpoint stores.
#include "runtime/checkpoint/Plan.h"
#include "runtime/plan/plan_generated.h"

#include <set>

namespace cleave {

const plan::Program &programOf(const plan::Plan &plan, unsigned rank) {
  return *plan.programs()->Get(plan.ranks()->Get(rank)->program());
}

std::vector<uint32_t> savedSlots(const plan::Plan &plan, unsigned rank) {
  std::vector<uint32_t> saved;
  std::set<int32_t> tensors;
  const auto *slots = programOf(plan, rank).slots();
  for (uint32_t i = 0; slots && i < slots->size(); ++i) {
    const plan::Slot &slot = *slots->Get(i);
    if (slot.space() != plan::Space::Persistent || slot.tensor() < 0)
      continue;
    const plan::Tensor &tensor = *plan.tensors()->Get(uint32_t(slot.tensor()));
    const bool kept = tensor.kind() == plan::TensorKind::Parameter || tensor.kind() == plan::TensorKind::Buffer ||
                      tensor.kind() == plan::TensorKind::State;
    if (kept && tensor.dtype() == slot.dtype() && tensors.insert(slot.tensor()).second)
      saved.push_back(i);
  }
  return saved;
}

std::vector<int64_t> tensorShape(const plan::Tensor &tensor) {
  if (!tensor.shape())
    return {};
  return {tensor.shape()->begin(), tensor.shape()->end()};
}

std::vector<int64_t> slotShape(const plan::Plan &plan, unsigned rank, unsigned slot) {
  const auto *shape = programOf(plan, rank).slots()->Get(slot)->shape();
  if (!shape)
    return {};
  return {shape->begin(), shape->end()};
}

std::vector<Box> slotBoxes(const plan::Plan &plan, unsigned rank, unsigned index) {
  const plan::Slot &slot = *programOf(plan, rank).slots()->Get(index);
  const std::vector<int64_t> global = tensorShape(*plan.tensors()->Get(uint32_t(slot.tensor())));
  const auto *coords = plan.ranks()->Get(rank)->coords();
  const std::vector<uint32_t> at =
      coords ? std::vector<uint32_t>(coords->begin(), coords->end()) : std::vector<uint32_t>{};
  const std::vector<uint32_t> mesh = meshSizes(plan);
  return localBoxes(slot.sharding(), global, mesh, at);
}

std::string safetensorsName(plan::DType type) {
  switch (type) {
  case plan::DType::F32:
    return "F32";
  case plan::DType::F16:
    return "F16";
  case plan::DType::BF16:
    return "BF16";
  case plan::DType::I32:
    return "I32";
  case plan::DType::I64:
    return "I64";
  case plan::DType::I1:
    return "BOOL";
  case plan::DType::U8:
    return "U8";
  }
  return "";
}

} // namespace cleave
