// Faults in steps.
#include "tests/plan_mutations/PlanSteps.h"

#include <algorithm>
#include <limits>

namespace cleave::plan_mutations {

namespace {

using namespace cleave::plan;

template <typename Op> bool any(Op &, const Place &) { return true; }

bool gradients(CollectiveT &op, const Place &place) {
  return op.kind == CollectiveKind::AllReduce && place.segment->kind == SegmentKind::Reduce && !op.buffers.empty();
}

template <typename Change> bool allReduce(Altered &a, Change change) {
  return alter<CollectiveT>(a, gradients, [&](CollectiveT &op, const Place &place) {
    change(op, *op.buffers[a.below(op.buffers.size())], place);
  });
}

template <typename Op, typename Change> bool each(Altered &a, Change change) {
  return alter<Op>(a, any<Op>, [&](Op &op, const Place &) { change(op); });
}

template <typename Change> bool kernel(Altered &a, Change change) {
  return alter<KernelT>(a, any<KernelT>, [&](KernelT &op, const Place &place) { change(op, place); });
}

/// A random slot from `listed`, other than `slot`, with the same size and type; -1 if there is none.
int64_t like(Altered &a, const ProgramT &program, uint32_t slot, const std::vector<uint32_t> &listed) {
  std::vector<int64_t> found;
  for (uint32_t other : listed)
    if (other != slot && program.slots[other]->bytes == program.slots[slot]->bytes &&
        program.slots[other]->dtype == program.slots[slot]->dtype)
      found.push_back(other);
  return found.empty() ? -1 : found[a.below(found.size())];
}

StepT copyOf(const StepT &step) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(Step::Pack(builder, &step));
  StepT copy;
  flatbuffers::GetRoot<Step>(builder.GetBufferPointer())->UnPackTo(&copy);
  return copy;
}

/// Calls change(place) for a random place that `accept` allows. Returns false if there is none.
template <typename Accept, typename Change> bool atPlace(Altered &a, Accept accept, Change change) {
  const auto found = places(a, accept);
  return !found.empty() && (change(found[a.below(found.size())]), true);
}

template <typename Accept> bool twice(Altered &a, Accept accept) {
  return atPlace(a, accept, [](const Place &place) {
    auto &steps = place.segment->steps;
    steps.insert(steps.begin() + static_cast<long>(place.index), std::make_unique<StepT>(copyOf(place.step())));
  });
}

template <typename Accept> bool leaveOut(Altered &a, Accept accept) {
  return atPlace(a, accept, [](const Place &place) {
    auto &steps = place.segment->steps;
    steps.erase(steps.begin() + static_cast<long>(place.index));
  });
}

bool is(const Place &place, StepOp kind) { return place.step().op.type == kind; }

template <typename Change> bool anyStep(Altered &a, Change change) {
  return atPlace(a, [](const Place &) { return true; }, change);
}

} // namespace

std::vector<Kind> kindsOfSteps() {
  return {
      {"an all-reduce of no elements",
       [](Altered &a) { return allReduce(a, [](auto &, auto &buffer, auto &) { buffer.count = 0; }); }},
      {"an all-reduce of one element",
       [](Altered &a) {
         return alter<CollectiveT>(
             a, [](auto &op, auto &place) { return gradients(op, place) && op.buffers[0]->count > 1; },
             [](auto &op, auto &) { op.buffers[0]->count = 1; });
       }},
      {"an all-reduce of half the elements",
       [](Altered &a) {
         return alter<CollectiveT>(
             a, [](auto &op, auto &place) { return gradients(op, place) && op.buffers[0]->count > 1; },
             [](auto &op, auto &) { op.buffers[0]->count /= 2; });
       }},
      {"an all-reduce twice",
       [](Altered &a) {
         return twice(a, [](const Place &p) { return is(p, StepOp::Collective) && isKind(p, SegmentKind::Reduce); });
       }},
      {"an all-reduce left out",
       [](Altered &a) {
         return leaveOut(a, [](const Place &p) { return is(p, StepOp::Collective) && isKind(p, SegmentKind::Reduce); });
       }},
      {"a buffer of an all-reduce left out",
       [](Altered &a) { return allReduce(a, [](auto &op, auto &, auto &) { op.buffers.pop_back(); }); }},
      {"a buffer of an all-reduce twice",
       [](Altered &a) {
         return allReduce(a, [](auto &op, auto &buffer, auto &) {
           op.buffers.push_back(std::make_unique<CollectiveBufferT>(buffer));
         });
       }},
      {"a sum that takes the maximum",
       [](Altered &a) { return allReduce(a, [](auto &op, auto &, auto &) { op.reduce = ReduceKind::Max; }); }},
      {"a collective of another kind",
       [](Altered &a) { return allReduce(a, [](auto &op, auto &, auto &) { op.kind = CollectiveKind::Broadcast; }); }},
      {"a collective into another slot",
       [](Altered &a) {
         return alter<CollectiveT>(
             a,
             [&](auto &op, auto &place) {
               std::vector<uint32_t> all;
               for (uint32_t i = 0; i < place.program->slots.size(); ++i)
                 if (place.program->slots[i]->space == Space::Persistent)
                   all.push_back(i);
               return gradients(op, place) && like(a, *place.program, op.buffers[0]->out, all) >= 0;
             },
             [&](auto &op, auto &place) {
               std::vector<uint32_t> all;
               for (uint32_t i = 0; i < place.program->slots.size(); ++i)
                 if (place.program->slots[i]->space == Space::Persistent)
                   all.push_back(i);
               op.buffers[0]->out = static_cast<uint32_t>(like(a, *place.program, op.buffers[0]->out, all));
             });
       }},
      {"shares that are not theirs",
       [](Altered &a) {
         return alter<CollectiveT>(
             a, [](auto &op, auto &) { return !op.buffers.empty() && op.buffers[0]->sizes.size() > 1; },
             [](auto &op, auto &) { ++op.buffers[0]->sizes[0], --op.buffers[0]->sizes[1]; });
       }},
      {"a collective over another group",
       [](Altered &a) {
         return alter<CollectiveT>(
             a,
             [&](auto &, auto &place) {
               for (auto &rank : a.plan.ranks)
                 if (a.plan.programs[rank->program].get() == place.program)
                   return rank->groups.size() > 1;
               return false;
             },
             [&](auto &op, auto &) { op.group = op.group ? op.group - 1 : 1; });
       }},
      {"a product over no terms", [](Altered &a) { return each<MatmulT>(a, [](auto &op) { op.k = 0; }); }},
      {"a product over half the terms",
       [](Altered &a) {
         return alter<MatmulT>(a, [](auto &op, auto &) { return op.k > 1; }, [](auto &op, auto &) { op.k /= 2; });
       }},
      {"a product of half the rows",
       [](Altered &a) {
         return alter<MatmulT>(a, [](auto &op, auto &) { return op.m > 1; }, [](auto &op, auto &) { op.m /= 2; });
       }},
      {"a product that overwrites a sum, or adds to nothing",
       [](Altered &a) { return each<MatmulT>(a, [](auto &op) { op.accumulate = !op.accumulate; }); }},
      {"a product's operand beyond its slot",
       [](Altered &a) { return each<MatmulT>(a, [](auto &op) { op.a->offset += 64; }); }},
      {"a product into another slot",
       [](Altered &a) {
         return alter<MatmulT>(
             a, [&](auto &op, auto &place) { return like(a, *place.program, op.c->slot, place.segment->slots) >= 0; },
             [&](auto &op, auto &place) {
               op.c->slot = static_cast<uint32_t>(like(a, *place.program, op.c->slot, place.segment->slots));
             });
       }},
      {"a stride twice as long",
       [](Altered &a) {
         return alter<MatmulT>(
             a, [](auto &op, auto &) { return op.m > 1 && op.k > 1; },
             [](auto &op, auto &) { op.a->strides[op.a->strides.size() - 2] *= 2; });
       }},
      {"a convolution with another stride",
       [](Altered &a) { return each<ConvT>(a, [](auto &op) { op.stride_h += op.ih + 1; }); }},
      {"a convolution with more padding",
       [](Altered &a) { return each<ConvT>(a, [](auto &op) { op.pad_top += op.stride_h; }); }},
      {"a convolution in other groups", [](Altered &a) { return each<ConvT>(a, [](auto &op) { op.groups *= 2; }); }},
      {"Winograd's method for another window",
       [](Altered &a) {
         return alter<ConvT>(
             a, [](auto &op, auto &) { return op.kh != 3; }, [](auto &op, auto &) { op.winograd = true; });
       }},
      {"a pooling with another window",
       [](Altered &a) { return each<PoolT>(a, [](auto &op) { op.kh += op.stride_h; }); }},
      {"a kernel's extent times 16", [](Altered &a) { return kernel(a, [](auto &op, auto &) { op.extent *= 16; }); }},
      {"a kernel's extent of 2^63 - 1",
       [](Altered &a) { return kernel(a, [](auto &op, auto &) { op.extent = std::numeric_limits<int64_t>::max(); }); }},
      {"a kernel's extent less one", [](Altered &a) { return kernel(a, [](auto &op, auto &) { --op.extent; }); }},
      {"another kernel",
       [](Altered &a) {
         if (a.plan.kernels.size() < 2)
           return false;
         return kernel(
             a, [&](auto &op, auto &) { op.kernel = static_cast<uint32_t>((op.kernel + 1) % a.plan.kernels.size()); });
       }},
      {"an argument left out", [](Altered &a) { return kernel(a, [](auto &op, auto &) { op.args.pop_back(); }); }},
      {"two arguments change places",
       [](Altered &a) {
         return alter<KernelT>(
             a,
             [](auto &op, auto &place) {
               return op.args.size() - op.outputs > 1 && op.args[0] != op.args[1] &&
                      place.program->slots[op.args[0]]->dtype != place.program->slots[op.args[1]]->dtype;
             },
             [](auto &op, auto &) { std::swap(op.args[0], op.args[1]); });
       }},
      {"an argument read from another slot",
       [](Altered &a) {
         return alter<KernelT>(
             a,
             [&](auto &op, auto &place) {
               return op.outputs < op.args.size() && like(a, *place.program, op.args[0], place.segment->slots) >= 0;
             },
             [&](auto &op, auto &place) {
               op.args[0] = static_cast<uint32_t>(like(a, *place.program, op.args[0], place.segment->slots));
             });
       }},
      {"an argument beyond its slot",
       [](Altered &a) {
         return alter<KernelT>(
             a, [](auto &op, auto &) { return op.outputs < op.args.size(); },
             [](auto &op, auto &) {
               op.offsets.resize(op.args.size());
               op.offsets[0] += 1 << 20;
             });
       }},
      {"a kernel that writes one argument more",
       [](Altered &a) { return kernel(a, [](auto &op, auto &) { ++op.outputs; }); }},
      {"a kernel's result in another slot",
       [](Altered &a) {
         return alter<KernelT>(
             a,
             [&](auto &op, auto &place) { return like(a, *place.program, op.args.back(), place.segment->slots) >= 0; },
             [&](auto &op, auto &place) {
               op.args.back() = static_cast<uint32_t>(like(a, *place.program, op.args.back(), place.segment->slots));
             });
       }},
      {"a fill left out",
       [](Altered &a) {
         return leaveOut(a, [](const Place &p) { return is(p, StepOp::Fill) && isKind(p, SegmentKind::Begin); });
       }},
      {"a sum that begins at 1",
       [](Altered &a) {
         return alter<FillT>(
             a, [](auto &, auto &place) { return isKind(place, SegmentKind::Begin); },
             [](auto &op, auto &) { op.value = 1; });
       }},
      {"a fill of another slot",
       [](Altered &a) {
         return alter<FillT>(
             a, [](auto &, auto &place) { return isKind(place, SegmentKind::Begin) && place.index > 0; },
             [](auto &op, auto &place) {
               op.dst = as<FillT>(*place.segment->steps[0]) ? as<FillT>(*place.segment->steps[0])->dst : op.dst + 1;
             });
       }},
      {"an update left out",
       [](Altered &a) {
         return leaveOut(a, [](const Place &p) { return is(p, StepOp::Kernel) && isKind(p, SegmentKind::Update); });
       }},
      {"an update twice",
       [](Altered &a) {
         return twice(a, [](const Place &p) { return is(p, StepOp::Kernel) && isKind(p, SegmentKind::Update); });
       }},
      {"a step left out", [](Altered &a) { return leaveOut(a, [](const Place &) { return true; }); }},
      {"a step twice", [](Altered &a) { return twice(a, [](const Place &) { return true; }); }},
      {"two steps change places",
       [](Altered &a) {
         return atPlace(
             a, [](const Place &p) { return p.segment->steps.size() > 1; },
             [&](const Place &p) {
               std::swap(p.segment->steps[p.index], p.segment->steps[a.below(p.segment->steps.size())]);
             });
       }},
      {"a step at its segment's end",
       [](Altered &a) {
         return atPlace(
             a, [](const Place &p) { return p.index + 1 < p.segment->steps.size(); },
             [](const Place &p) {
               auto &steps = p.segment->steps;
               std::rotate(steps.begin() + static_cast<long>(p.index), steps.begin() + static_cast<long>(p.index) + 1,
                           steps.end());
             });
       }},
      {"a step of another segment",
       [](Altered &a) {
         return atPlace(
             a, [](const Place &p) { return p.program->segments.size() > 1; },
             [&](const Place &p) {
               auto &other = p.program->segments[a.below(p.program->segments.size())]->steps;
               auto &steps = p.segment->steps;
               auto moved = std::move(steps[p.index]);
               steps.erase(steps.begin() + static_cast<long>(p.index));
               other.insert(other.begin() + static_cast<long>(a.below(other.size() + 1)), std::move(moved));
             });
       }},
      {"a step that reads another value",
       [](Altered &a) {
         return anyStep(a, [&](const Place &p) { ++p.step().values[a.below(p.step().values.size())]; });
       }},
      {"a step that says less of its values",
       [](Altered &a) { return anyStep(a, [](const Place &p) { p.step().values.pop_back(); }); }},
      {"a segment that leaves another value",
       [](Altered &a) {
         return atPlace(
             a, [](const Place &p) { return !p.segment->leaves.empty(); },
             [&](const Place &p) {
               SlotValue &leaves = p.segment->leaves[a.below(p.segment->leaves.size())];
               leaves.mutate_value(leaves.value() + 1);
             });
       }},
      {"a segment that says less of what it leaves",
       [](Altered &a) {
         return atPlace(
             a, [](const Place &p) { return !p.segment->leaves.empty(); },
             [&](const Place &p) {
               auto &leaves = p.segment->leaves;
               leaves.erase(leaves.begin() + static_cast<long>(a.below(leaves.size())));
             });
       }},
      {"an empty step", [](Altered &a) { return anyStep(a, [](const Place &p) { p.step().op.Reset(); }); }},
      {"a path out of range", [](Altered &a) { return anyStep(a, [](const Place &p) { p.step().path = 1u << 30; }); }},
      {"a layer out of range",
       [](Altered &a) { return anyStep(a, [](const Place &p) { p.step().last_layer = 1u << 30; }); }},
      {"a location out of range",
       [](Altered &a) { return anyStep(a, [](const Place &p) { p.step().location = 0xffffffff; }); }},
      {"a copy of half the elements",
       [](Altered &a) {
         return alter<CopyT>(
             a, [](auto &op, auto &) { return !op.shape.empty() && op.shape[0] > 1; },
             [](auto &op, auto &) { op.shape[0] /= 2; });
       }},
      {"a copy from beyond its slot",
       [](Altered &a) { return each<CopyT>(a, [](auto &op) { op.src->offset += 1 << 20; }); }},
      {"a send left out", [](Altered &a) { return leaveOut(a, [](const Place &p) { return is(p, StepOp::Send); }); }},
      {"a receive left out",
       [](Altered &a) { return leaveOut(a, [](const Place &p) { return is(p, StepOp::Recv); }); }},
      {"a message with another tag", [](Altered &a) { return each<SendT>(a, [](auto &op) { op.tag += 1000; }); }},
      {"a message to another peer", [](Altered &a) { return each<SendT>(a, [](auto &op) { ++op.peer; }); }},
      {"a message on another channel", [](Altered &a) { return each<SendT>(a, [](auto &op) { ++op.channel; }); }},
      {"a message of half the bytes", [](Altered &a) { return each<SendT>(a, [](auto &op) { op.bytes /= 2; }); }},
      {"a look-up of more rows", [](Altered &a) { return each<EmbeddingT>(a, [](auto &op) { op.rows *= 2; }); }},
      {"a look-up of more ids", [](Altered &a) { return each<EmbeddingT>(a, [](auto &op) { op.count *= 2; }); }},
      {"a gather from a longer dimension",
       [](Altered &a) { return each<GatherT>(a, [](auto &op) { op.extent *= 2; }); }},
      {"random numbers into a slot too small",
       [](Altered &a) {
         return alter<RandomT>(
             a, [](auto &op, auto &) { return !op.shape.empty(); }, [](auto &op, auto &) { op.shape[0] *= 4; });
       }},
  };
}

} // namespace cleave::plan_mutations
