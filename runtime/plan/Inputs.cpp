// Lists a rank's inputs, from the layouts of its actions.
#include "runtime/plan/Inputs.h"

#include "runtime/base/Error.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <map>

namespace cleave {

namespace {

std::string fieldName(const plan::Program &program, uint32_t slot) {
  if (program.inputs())
    for (const plan::NamedSlot *input : *program.inputs())
      if (input->slot() == slot)
        return input->name()->str();
  throw environmentError(fmt::format("plan: input slot {} has no field of the data", slot));
}

InputPart describe(const plan::Plan &plan, const plan::Program &program, const plan::Rank &rank, uint32_t slot) {
  const plan::Slot *info = program.slots()->Get(slot);
  if (info->tensor() < 0)
    throw environmentError(fmt::format("plan: input slot {} has no tensor", slot));
  const plan::Tensor *tensor = plan.tensors()->Get(static_cast<uint32_t>(info->tensor()));
  InputPart part{};
  part.field = fieldName(program, slot);
  part.slot = slot;
  part.dtype = info->dtype();
  part.bytes = info->bytes();
  if (tensor->shape())
    part.global.assign(tensor->shape()->begin(), tensor->shape()->end());
  std::vector<uint32_t> coords(rank.coords()->begin(), rank.coords()->end());
  auto mesh = meshSizes(plan);
  part.shape = localShape(info->sharding(), part.global, mesh, coords);
  part.boxes = localBoxes(info->sharding(), part.global, mesh, coords);
  return part;
}

} // namespace

int64_t evalBatchOf(const plan::Plan &plan) { return plan.eval_batch() ? plan.eval_batch() : plan.batch(); }

std::string combinesSamples(const plan::Plan &plan, bool eval) {
  const uint32_t place = eval ? plan.eval_mixes() : plan.train_mixes();
  return place ? plan.strings()->Get(place)->str() : "";
}

std::vector<InputPart> inputParts(const plan::Plan &plan, unsigned rankIndex, bool eval) {
  const plan::Rank &rank = *plan.ranks()->Get(rankIndex);
  const plan::Program &program = *plan.programs()->Get(rank.program());
  std::map<std::pair<int32_t, uint32_t>, InputPart> parts;
  const auto *actions = eval ? program.eval() : program.train();
  if (!actions)
    return {};
  for (const plan::Action *action : *actions) {
    const plan::Segment *segment = program.segments()->Get(action->segment());
    if (!segment->slots())
      continue;
    for (uint32_t i = 0; i < segment->slots()->size(); ++i) {
      uint32_t slot = segment->slots()->Get(i);
      if (program.slots()->Get(slot)->space() != plan::Space::Input)
        continue;
      uint64_t offset = program.layouts()->Get(action->layout())->offsets()->Get(i);
      auto [found, fresh] = parts.try_emplace({action->microbatch(), slot});
      if (fresh) {
        found->second = describe(plan, program, rank, slot);
        found->second.microbatch = action->microbatch();
        found->second.offset = offset;
      } else if (found->second.offset != offset) {
        throw environmentError(fmt::format("plan: input slot {} of microbatch {} is at {} and at {}", slot,
                                           action->microbatch(), found->second.offset, offset));
      }
    }
  }
  std::vector<InputPart> list;
  for (auto &[key, part] : parts)
    list.push_back(std::move(part));
  return list;
}

} // namespace cleave
