// Faults in tables, memory, schedules and code.
#include "tests/plan_mutations/Kinds.h"

#include "tests/plan_mutations/PlanSteps.h"

#include <algorithm>
#include <limits>

namespace cleave::plan_mutations {

namespace {

using namespace cleave::plan;

template <typename T> auto *pick(Altered &a, std::vector<std::unique_ptr<T>> &list) {
  return list.empty() ? nullptr : list[a.below(list.size())].get();
}

ProgramT &someProgram(Altered &a) { return *a.plan.programs[a.below(a.plan.programs.size())]; }

/// A random slot, of any program, that `accept` allows; null if there is none.
template <typename Accept> SlotT *someSlot(Altered &a, Accept accept) {
  std::vector<SlotT *> found;
  for (auto &program : a.plan.programs)
    for (auto &slot : program->slots)
      if (accept(*slot))
        found.push_back(slot.get());
  return a.oneOf(found);
}

bool isPersistent(const SlotT &slot) { return slot.space == Space::Persistent && slot.bytes > 0; }

template <typename Change> bool ofKernel(Altered &a, Change change) {
  KernelInfoT *kernel = pick(a, a.plan.kernels);
  return kernel && change(*kernel);
}

std::vector<ActionT *> working(ProgramT &program, std::vector<std::unique_ptr<ActionT>> &list) {
  std::vector<ActionT *> found;
  for (auto &action : list)
    if (!program.segments[action->segment]->steps.empty())
      found.push_back(action.get());
  return found;
}

bool emptySegment(Altered &a, SegmentKind kind) {
  std::vector<SegmentT *> found;
  for (auto &program : a.plan.programs)
    for (auto &segment : program->segments)
      if (segment->kind == kind && !segment->steps.empty())
        found.push_back(segment.get());
  SegmentT *one = a.oneOf(found);
  return one && (one->steps.clear(), true);
}

} // namespace

std::vector<Kind> kinds() {
  return {
      {"`begin` emptied", [](Altered &a) { return emptySegment(a, SegmentKind::Begin); }},
      {"`update` emptied", [](Altered &a) { return emptySegment(a, SegmentKind::Update); }},
      {"`reduce` emptied", [](Altered &a) { return emptySegment(a, SegmentKind::Reduce); }},
      {"a forward segment emptied", [](Altered &a) { return emptySegment(a, SegmentKind::Forward); }},
      {"an unknown backend",
       [](Altered &a) {
         a.plan.backend = "tpu";
         return true;
       }},
      {"the other backend",
       [](Altered &a) {
         a.plan.backend = "cuda";
         return true;
       }},
      {"an unknown target",
       [](Altered &a) {
         a.plan.target = "x86-64-v9";
         return true;
       }},
      {"one more microbatch",
       [](Altered &a) {
         ++a.plan.microbatches;
         return true;
       }},
      {"products that may be rounded to TF32",
       [](Altered &a) {
         const bool whole = a.plan.training->precision == Precision::Fp32;
         a.plan.training->precision = Precision::Tf32;
         return whole;
       }},
      {"a half type that the plan does not have",
       [](Altered &a) {
         a.plan.training->precision = a.plan.training->level > 0 ? Precision::Fp32 : Precision::Bf16;
         return true;
       }},
      {"gradients reduced in another type",
       [](Altered &a) {
         a.plan.training->reduce = a.plan.training->precision == Precision::Fp16 ? Precision::Bf16 : Precision::Fp16;
         return true;
       }},
      {"a learning rate that changes every 0 steps",
       [](Altered &a) {
         a.plan.training->rate->every = 0;
         return true;
       }},
      {"a learning rate of an unknown schedule",
       [](Altered &a) {
         a.plan.training->rate->kind = RateKind(17);
         return true;
       }},
      {"a data field of another name",
       [](Altered &a) {
         pick(a, a.plan.data->fields)->name += "s";
         return true;
       }},
      {"a data field of another element type",
       [](Altered &a) {
         DType &dtype = pick(a, a.plan.data->fields)->dtype;
         dtype = dtype == DType::F32 ? DType::I32 : DType::F32;
         return true;
       }},
      {"a data field with one element more",
       [](Altered &a) {
         DataFieldT *field = pick(a, a.plan.data->fields);
         if (field->shape.empty())
           field->shape.push_back(1);
         ++field->shape[0];
         return true;
       }},
      {"indices beyond a data field",
       [](Altered &a) {
         DataFieldT *field = pick(a, a.plan.data->fields);
         auto rule = std::make_unique<IndexRuleT>();
         rule->start = field->shape, rule->size = field->shape;
         rule->start.push_back(0), rule->size.push_back(1);
         field->indices.push_back(std::move(rule));
         return true;
       }},
      {"an axis of the mesh one longer",
       [](Altered &a) {
         ++pick(a, a.plan.mesh)->size;
         return true;
       }},
      {"two ranks change coordinates",
       [](Altered &a) {
         if (a.plan.ranks.size() < 2)
           return false;
         const size_t one = a.below(a.plan.ranks.size() - 1);
         std::swap(a.plan.ranks[one]->coords, a.plan.ranks[one + 1]->coords);
         return true;
       }},
      {"a rank's shard begins one later",
       [](Altered &a) {
         RankT *rank = pick(a, a.plan.ranks);
         if (rank->scalars.empty())
           return false;
         ++rank->scalars[a.below(rank->scalars.size())];
         return true;
       }},
      {"a rank of another program",
       [](Altered &a) {
         if (a.plan.programs.size() < 2)
           return false;
         RankT *rank = pick(a, a.plan.ranks);
         rank->program = static_cast<uint32_t>((rank->program + 1) % a.plan.programs.size());
         return true;
       }},
      {"another of a rank's groups",
       [](Altered &a) {
         RankT *rank = pick(a, a.plan.ranks);
         if (rank->groups.empty() || a.plan.groups.size() < 2)
           return false;
         uint32_t &group = rank->groups[a.below(rank->groups.size())];
         group = static_cast<uint32_t>((group + 1) % a.plan.groups.size());
         return true;
       }},
      {"two members of a group change places",
       [](Altered &a) {
         GroupT *group = pick(a, a.plan.groups);
         if (!group || group->ranks.size() < 2)
           return false;
         std::swap(group->ranks[0], group->ranks[1]);
         return true;
       }},
      {"a member of a group left out",
       [](Altered &a) {
         GroupT *group = pick(a, a.plan.groups);
         if (!group || group->ranks.size() < 2)
           return false;
         group->ranks.pop_back();
         return true;
       }},
      {"another peer",
       [](Altered &a) {
         RankT *rank = pick(a, a.plan.ranks);
         if (rank->peers.empty() || a.plan.ranks.size() < 3)
           return false;
         uint32_t &peer = rank->peers[a.below(rank->peers.size())];
         peer = static_cast<uint32_t>((peer + 1) % a.plan.ranks.size());
         return true;
       }},
      {"a scalar (`lr`, `step`) missing",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         if (program.scalars.empty())
           return false;
         program.scalars.erase(program.scalars.begin() + static_cast<long>(a.below(program.scalars.size())));
         return true;
       }},
      {"a scalar of another name",
       [](Altered &a) {
         NamedSlotT *scalar = pick(a, someProgram(a).scalars);
         if (!scalar)
           return false;
         scalar->name += "2";
         return true;
       }},
      {"a metric missing",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         return std::erase_if(program.metrics, [](const auto &metric) { return metric->name == "loss"; }) > 0;
       }},
      {"two metrics change slots",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         if (program.metrics.size() < 2)
           return false;
         std::swap(program.metrics[0]->slot, program.metrics[1]->slot);
         return true;
       }},
      {"an input bound to nothing",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         if (program.inputs.empty())
           return false;
         program.inputs.pop_back();
         return true;
       }},
      {"a tensor's dimension one longer",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [](const SlotT &s) { return isPersistent(s) && s.tensor >= 0 && !s.shape.empty(); });
         if (!slot)
           return false;
         TensorT &tensor = *a.plan.tensors[static_cast<size_t>(slot->tensor)];
         ++tensor.shape[a.below(tensor.shape.size())];
         return true;
       }},
      {"a state or gradient of no parameter",
       [](Altered &a) {
         std::vector<TensorT *> found;
         for (auto &tensor : a.plan.tensors)
           if (tensor->parameter >= 0)
             found.push_back(tensor.get());
         TensorT *tensor = a.oneOf(found);
         if (!tensor)
           return false;
         tensor->parameter = static_cast<int>(a.plan.tensors.size() + a.below(100));
         return true;
       }},
      {"a program of another stage",
       [](Altered &a) {
         someProgram(a).stage += 1 + static_cast<uint32_t>(a.below(3));
         return true;
       }},
      {"a parameter frozen",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [&](const SlotT &s) {
           return isPersistent(s) && kindOf(a, s) == TensorKind::Parameter &&
                  a.plan.tensors[static_cast<size_t>(s.tensor)]->trainable;
         });
         if (!slot)
           return false;
         a.plan.tensors[static_cast<size_t>(slot->tensor)]->trainable = false;
         return true;
       }},
      {"a gradient of another parameter",
       [](Altered &a) {
         std::vector<TensorT *> found;
         for (auto &tensor : a.plan.tensors)
           if (tensor->kind == TensorKind::Gradient)
             found.push_back(tensor.get());
         if (found.size() < 2)
           return false;
         std::swap(found[0]->parameter, found[1]->parameter);
         return true;
       }},
      {"a slot half as large",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [](const SlotT &s) { return s.bytes > 8; });
         return slot && (slot->bytes /= 2, true);
       }},
      {"a slot of another element type",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [](const SlotT &s) { return s.dtype == DType::F32 && s.bytes > 0; });
         return slot && (slot->dtype = DType::I32, true);
       }},
      {"a slot's dimension one longer",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [](const SlotT &s) { return !s.shape.empty(); });
         return slot && (++slot->shape[a.below(slot->shape.size())], true);
       }},
      {"a persistent slot on another",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [](const SlotT &s) { return isPersistent(s) && s.offset >= 64; });
         return slot && (slot->offset -= 64, true);
       }},
      {"a slot beyond the arena",
       [](Altered &a) {
         SlotT *slot = someSlot(a, isPersistent);
         return slot && (slot->offset = uint64_t{1} << 50, true);
       }},
      {"a sum that is said to be whole",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [&](const SlotT &s) {
           if (!s.sharding || kindOf(a, s) != TensorKind::Gradient)
             return false;
           for (uint8_t axis : s.sharding->partial_axes)
             if (a.plan.mesh[axis]->size > 1)
               return true;
           return false;
         });
         return slot && (slot->sharding->partial_axes.clear(), true);
       }},
      {"a whole that is said to be partial",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [&](const SlotT &s) {
           return s.sharding && s.sharding->partial_axes.empty() && kindOf(a, s) == TensorKind::Parameter &&
                  a.plan.tensors[static_cast<size_t>(s.tensor)]->trainable;
         });
         size_t axis = 0;
         while (axis < a.plan.mesh.size() && a.plan.mesh[axis]->size < 2)
           ++axis;
         return slot && axis < a.plan.mesh.size() &&
                (slot->sharding->partial_axes.push_back(static_cast<uint8_t>(axis)), true);
       }},
      {"a split that is not there",
       [](Altered &a) {
         SlotT *slot = someSlot(a, [&](const SlotT &s) {
           if (s.sharding && s.tensor >= 0)
             for (const auto &dim : s.sharding->dims)
               for (const auto &factor : dim->factors)
                 for (uint8_t axis : factor->axes)
                   if (a.plan.mesh[axis]->size > 1)
                     return true;
           return false;
         });
         if (!slot)
           return false;
         for (auto &dim : slot->sharding->dims)
           for (auto &factor : dim->factors)
             factor->axes.clear();
         return true;
       }},
      {"a layout with two slots in one place",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         LayoutT *layout = pick(a, program.layouts);
         if (!layout || layout->offsets.size() < 2)
           return false;
         const size_t one = a.below(layout->offsets.size() - 1);
         if (layout->offsets[one] == layout->offsets[one + 1])
           return false;
         layout->offsets[one] = layout->offsets[one + 1];
         return true;
       }},
      {"a layout one slot short",
       [](Altered &a) {
         LayoutT *layout = pick(a, someProgram(a).layouts);
         return layout && !layout->offsets.empty() && (layout->offsets.pop_back(), true);
       }},
      {"a layout over persistent slots",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         for (auto &segment : program.segments)
           for (size_t i = 0; i < segment->slots.size(); ++i)
             if (program.slots[segment->slots[i]]->space == Space::Placed && program.slots[segment->slots[i]]->bytes)
               for (auto &action : program.train)
                 if (program.segments[action->segment] == segment)
                   return program.layouts[action->layout]->offsets[i] = 0, true;
         return false;
       }},
      {"an arena too small",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         if (program.arena_bytes < 64)
           return false;
         program.arena_bytes -= 64, program.peak_bytes -= 64;
         program.lower_bound_bytes = std::min(program.lower_bound_bytes, program.peak_bytes);
         return true;
       }},
      {"an action left out",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         const auto found = working(program, program.train);
         if (found.empty())
           return false;
         const ActionT *one = found[a.below(found.size())];
         std::erase_if(program.train, [&](const auto &action) { return action.get() == one; });
         return true;
       }},
      {"an action twice",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         const auto found = working(program, program.train);
         if (found.empty())
           return false;
         const ActionT *one = found[a.below(found.size())];
         for (size_t i = 0; i < program.train.size(); ++i)
           if (program.train[i].get() == one) {
             program.train.insert(program.train.begin() + static_cast<long>(i), std::make_unique<ActionT>(*one));
             break;
           }
         return true;
       }},
      {"a segment of a stage that is not there",
       [](Altered &a) {
         pick(a, someProgram(a).segments)->stage = static_cast<int32_t>(a.plan.stages.size());
         return true;
       }},
      {"two actions change places",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         if (working(program, program.train).size() < 2)
           return false;
         const size_t one = a.below(program.train.size() - 1);
         std::swap(program.train[one], program.train[one + 1]);
         return true;
       }},
      {"another microbatch",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         const auto found = working(program, program.train);
         if (found.empty() || a.plan.microbatches < 2)
           return false;
         ActionT &action = *found[a.below(found.size())];
         action.microbatch = (action.microbatch + 1) % static_cast<int32_t>(a.plan.microbatches);
         return true;
       }},
      {"a send that nobody waits for",
       [](Altered &a) {
         ProgramT &program = someProgram(a);
         for (auto &action : program.train)
           if (!action->wait_sends.empty())
             return action->wait_sends.clear(), true;
         return false;
       }},
      {"code cut short",
       [](Altered &a) {
         if (a.plan.code.size() < 128)
           return false;
         a.plan.code.resize(64 + a.below(a.plan.code.size() - 64));
         return true;
       }},
      {"a byte of code",
       [](Altered &a) {
         if (a.plan.code.empty())
           return false;
         a.plan.code[a.below(a.plan.code.size())] ^= 0x40;
         return true;
       }},
      {"a kernel of another name",
       [](Altered &a) { return ofKernel(a, [](KernelInfoT &k) { return k.symbol += "x", true; }); }},
      {"a kernel that says it reaches further",
       [](Altered &a) { return ofKernel(a, [](KernelInfoT &k) { return ++k.arguments[0]->base, true; }); }},
      {"a kernel that says it takes fewer arguments",
       [](Altered &a) { return ofKernel(a, [](KernelInfoT &k) { return k.arguments.pop_back(), true; }); }},
      {"two kernels change places",
       [](Altered &a) {
         if (a.plan.kernels.size() < 2)
           return false;
         std::swap(a.plan.kernels[0], a.plan.kernels[1]);
         return true;
       }},
  };
}

} // namespace cleave::plan_mutations
