// Converts steps to Ops, and layouts to addresses.
#include "runtime/executor/Resolved.h"

namespace cleave {

Resolved::Resolved(const plan::Plan &plan, const plan::Program &program, const plan::Rank &rank, const OpMaker &make)
    : plan(plan), program(program), rank(rank) {
  segments.resize(program.segments() ? program.segments()->size() : 0);
  train = list(program.train(), make);
  eval = list(program.eval(), make);
}

void Resolved::resolve(uint32_t index, const OpMaker &make) {
  ResolvedSegment &segment = segments[index];
  if (segment.info)
    return;
  segment.info = program.segments()->Get(index);
  segment.scope = std::make_unique<SlotScope>(plan, program, rank, *segment.info);
  if (segment.info->steps())
    for (const plan::Step *step : *segment.info->steps())
      segment.ops.push_back(make(*step, *segment.scope));
}

std::vector<ResolvedAction> Resolved::list(const flatbuffers::Vector<flatbuffers::Offset<plan::Action>> *actions,
                                           const OpMaker &make) {
  std::vector<ResolvedAction> all;
  if (!actions)
    return all;
  for (const plan::Action *action : *actions) {
    resolve(action->segment(), make);
    all.push_back({action, &segments[action->segment()], {}, action->microbatch()});
  }
  return all;
}

void Resolved::makeTables(uint32_t segment, uint32_t layoutIndex, std::byte *arena, std::array<std::byte *, 2> inputs) {
  auto [found, fresh] = tables.try_emplace({segment, layoutIndex});
  if (!fresh)
    return;
  const plan::Segment *info = segments[segment].info;
  const plan::Layout *layout = program.layouts()->Get(layoutIndex);
  std::map<uint32_t, uint64_t> placed;
  for (uint32_t i = 0; info->slots() && i < info->slots()->size(); ++i)
    placed[info->slots()->Get(i)] = layout->offsets()->Get(i);
  for (size_t which = 0; which < 2; ++which)
    for (uint32_t slot : segments[segment].scope->slots()) {
      const plan::Slot *slotInfo = program.slots()->Get(slot);
      const bool input = slotInfo->space() == plan::Space::Input;
      const uint64_t offset = slotInfo->space() == plan::Space::Persistent ? slotInfo->offset() : placed.at(slot);
      found->second[which].push_back((input ? inputs[which] : arena) + offset);
    }
  for (const std::vector<std::byte *> &table : found->second)
    for (const auto &op : segments[segment].ops)
      op->place(table.data());
}

void Resolved::place(std::byte *arena, std::array<std::byte *, 2> inputs) {
  for (auto *actions : {&train, &eval})
    for (ResolvedAction &action : *actions) {
      makeTables(action.info->segment(), action.info->layout(), arena, inputs);
      auto &pair = tables.at({action.info->segment(), action.info->layout()});
      for (size_t which = 0; which < 2; ++which)
        action.tables[which] = pair[which].data();
    }
}

const plan::Slot *findNamed(const plan::Program &program,
                            const flatbuffers::Vector<flatbuffers::Offset<plan::NamedSlot>> *names,
                            const std::string &name) {
  if (names)
    for (const plan::NamedSlot *named : *names)
      if (named->name() && named->name()->str() == name)
        return program.slots()->Get(named->slot());
  return nullptr;
}

std::string pathOf(const plan::Plan &plan, const plan::Step &step) {
  return plan.strings() && step.path() < plan.strings()->size() ? plan.strings()->Get(step.path())->str() : "";
}

} // namespace cleave
