// Definitions of PlanBuilder.h, compiled once for all tests: packing a plan instantiates all of its tables.
#include "tests/support/PlanBuilder.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace cleave::test {

ProgramWriter::ProgramWriter() { program.layouts.push_back(std::make_unique<LayoutT>()); }

ProgramWriter::ProgramWriter(ProgramWriter &&) = default;
ProgramWriter::~ProgramWriter() = default;

uint32_t ProgramWriter::slot(const std::string &name, plan::DType dtype, std::vector<int64_t> shape, Space space,
                             int tensor) {
  auto slot = std::make_unique<SlotT>();
  slot->name = name;
  slot->dtype = dtype;
  int64_t bytes = elementBytes(dtype);
  for (int64_t size : shape)
    bytes *= size;
  slot->shape = std::move(shape);
  slot->bytes = static_cast<uint64_t>(bytes);
  slot->space = space;
  slot->tensor = tensor;
  uint64_t &at = space == Space::Input ? input : arena;
  offsets.push_back(at);
  slot->offset = space == Space::Persistent ? at : 0;
  at += (slot->bytes + 63) / 64 * 64;
  program.slots.push_back(std::move(slot));
  return static_cast<uint32_t>(program.slots.size() - 1);
}

void ProgramWriter::shard(uint32_t slot, std::vector<std::vector<std::pair<int64_t, std::vector<uint8_t>>>> dims,
                          std::vector<uint8_t> partial) {
  auto sharding = std::make_unique<ShardingT>();
  for (auto &factors : dims) {
    auto dim = std::make_unique<DimT>();
    for (auto &[size, axes] : factors) {
      auto factor = std::make_unique<FactorT>();
      factor->size = size;
      factor->axes = axes;
      dim->factors.push_back(std::move(factor));
    }
    sharding->dims.push_back(std::move(dim));
  }
  sharding->partial_axes = std::move(partial);
  program.slots[slot]->sharding = std::move(sharding);
}

uint32_t ProgramWriter::segment(const std::string &name, SegmentKind kind) {
  auto segment = std::make_unique<SegmentT>();
  segment->name = name;
  segment->kind = kind;
  program.segments.push_back(std::move(segment));
  return static_cast<uint32_t>(program.segments.size() - 1);
}

std::unique_ptr<ViewT> ProgramWriter::view(uint32_t slot, std::vector<int64_t> strides, uint64_t offset) {
  auto view = std::make_unique<ViewT>();
  view->slot = slot;
  view->strides = std::move(strides);
  view->offset = offset;
  return view;
}

void ProgramWriter::matmul(uint32_t segment, uint32_t a, uint32_t b, uint32_t c, int64_t m, int64_t n, int64_t k) {
  MatmulT op;
  op.a = view(a, {k, 1});
  op.b = view(b, {n, 1});
  op.c = view(c, {n, 1});
  op.m = m, op.n = n, op.k = k;
  step(segment, std::move(op));
}

void ProgramWriter::copy(uint32_t segment, uint32_t src, uint32_t dst, int64_t count) {
  CopyT op;
  op.src = view(src, {1});
  op.dst = view(dst, {1});
  op.shape = {count};
  step(segment, std::move(op));
}

void ProgramWriter::fill(uint32_t segment, uint32_t dst, double value) {
  FillT op;
  op.dst = dst;
  op.value = value;
  step(segment, std::move(op));
}

void ProgramWriter::allReduce(uint32_t segment, uint32_t in, uint32_t out, int64_t count, uint32_t group) {
  CollectiveT op;
  op.group = group;
  auto buffer = std::make_unique<CollectiveBufferT>();
  buffer->in = in;
  buffer->out = out;
  buffer->count = count;
  op.buffers.push_back(std::move(buffer));
  step(segment, std::move(op));
}

template <typename OpT>
static void addMessage(ProgramWriter &writer, uint32_t segment, uint32_t slot, uint32_t peer, uint32_t tag) {
  OpT op;
  op.slot = slot;
  op.bytes = writer.program.slots[slot]->bytes;
  op.peer = peer;
  op.tag = tag;
  writer.step(segment, std::move(op));
}

void ProgramWriter::send(uint32_t segment, uint32_t slot, uint32_t peer, uint32_t tag) {
  addMessage<SendT>(*this, segment, slot, peer, tag);
}

void ProgramWriter::recv(uint32_t segment, uint32_t slot, uint32_t peer, uint32_t tag) {
  addMessage<RecvT>(*this, segment, slot, peer, tag);
}

ActionT &ProgramWriter::action(uint32_t segment, int microbatch, bool eval) {
  auto action = std::make_unique<ActionT>();
  action->segment = segment;
  action->microbatch = microbatch;
  action->layout = segment; // finish() makes one per segment
  auto &list = eval ? program.eval : program.train;
  list.push_back(std::move(action));
  return *list.back();
}

void ProgramWriter::named(std::vector<std::unique_ptr<NamedSlotT>> &list, const std::string &name, uint32_t slot) {
  auto named = std::make_unique<NamedSlotT>();
  named->name = name;
  named->slot = slot;
  list.push_back(std::move(named));
}

std::unique_ptr<ProgramT> ProgramWriter::finish() {
  program.layouts.clear();
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(Program::Pack(builder, &program));
  const auto *packed = flatbuffers::GetRoot<Program>(builder.GetBufferPointer());
  for (size_t s = 0; s < program.segments.size(); ++s) {
    std::set<uint32_t> touched;
    if (const auto *steps = packed->segments()->Get(static_cast<uint32_t>(s))->steps())
      for (const Step *step : *steps)
        check::forEachAccess(*step, *packed, [&](const check::Access &access) { touched.insert(access.slot); });
    auto layout = std::make_unique<LayoutT>();
    program.segments[s]->slots.clear();
    for (uint32_t slot : touched)
      if (program.slots[slot]->space != Space::Persistent) {
        program.segments[s]->slots.push_back(slot);
        layout->offsets.push_back(offsets[slot]);
      }
    program.layouts.push_back(std::move(layout));
  }
  for (uint32_t slot = 0; slot < program.slots.size(); ++slot)
    if (program.slots[slot]->space == Space::Input) { // the field has the slot's name
      program.inputs.push_back(std::make_unique<NamedSlotT>());
      program.inputs.back()->name = program.slots[slot]->name;
      program.inputs.back()->slot = slot;
    }
  program.arena_bytes = arena;
  program.input_bytes = input;
  program.peak_bytes = arena + 2 * input;
  program.lower_bound_bytes = program.peak_bytes;
  return std::make_unique<ProgramT>(std::move(program));
}

void moveInputs(ProgramT &program, size_t action, uint64_t shift) {
  ActionT &moved = *program.train[action];
  auto layout = std::make_unique<LayoutT>(*program.layouts[moved.layout]);
  const auto &slots = program.segments[moved.segment]->slots;
  for (size_t i = 0; i < slots.size(); ++i)
    if (program.slots[slots[i]]->space == Space::Input)
      layout->offsets[i] += shift;
  moved.layout = static_cast<uint32_t>(program.layouts.size());
  program.layouts.push_back(std::move(layout));
  program.input_bytes += shift;
  program.peak_bytes += 2 * shift;
}

PlanT makePlan(uint32_t dp, uint32_t tp, uint32_t pp) {
  PlanT plan;
  plan.threads = 1;
  plan.microbatches = 1;
  plan.batch = 8;
  plan.backend = "cpu";
  plan.strings = {""};
  const char *names[] = {"dp", "tp", "pp"};
  uint32_t sizes[] = {dp, tp, pp};
  for (int a = 0; a < 3; ++a) {
    auto axis = std::make_unique<MeshAxisT>();
    axis->name = names[a];
    axis->size = sizes[a];
    plan.mesh.push_back(std::move(axis));
  }
  for (uint32_t p = 0; p < pp; ++p)
    for (uint32_t d = 0; d < dp; ++d)
      for (uint32_t t = 0; t < tp; ++t) {
        auto rank = std::make_unique<RankT>();
        rank->coords = {d, t, p};
        plan.ranks.push_back(std::move(rank));
      }
  return plan;
}

int addTensor(PlanT &plan, const std::string &name, TensorKind kind, std::vector<int64_t> shape, plan::DType dtype) {
  auto tensor = std::make_unique<TensorT>();
  tensor->name = name;
  tensor->kind = kind;
  tensor->dtype = dtype;
  tensor->shape = std::move(shape);
  plan.tensors.push_back(std::move(tensor));
  return static_cast<int>(plan.tensors.size() - 1);
}

void addGroup(PlanT &plan, std::vector<uint32_t> ranks, const std::string &axis) {
  auto group = std::make_unique<GroupT>();
  group->axis = axis;
  group->ranks = ranks;
  for (uint32_t rank : ranks)
    plan.ranks[rank]->groups.push_back(static_cast<uint32_t>(plan.groups.size()));
  plan.groups.push_back(std::move(group));
}

void declareKernel(KernelInfoT &kernel, const ProgramT &program, const KernelT &call) {
  for (size_t i = 0; i < call.args.size(); ++i) {
    auto argument = std::make_unique<KernelArgumentT>();
    const bool there = call.args[i] < program.slots.size();
    int64_t elements = there ? 1 : 0;
    for (int64_t size : there ? program.slots[call.args[i]]->shape : std::vector<int64_t>())
      elements *= size;
    argument->dtype = there ? program.slots[call.args[i]]->dtype : plan::DType::F32;
    if (i < call.offsets.size())
      elements -= static_cast<int64_t>(call.offsets[i] / dtypeSize(argument->dtype));
    (elements == call.extent ? argument->per_extent : argument->base) = elements == call.extent ? 1 : elements;
    argument->written = i + call.outputs >= call.args.size();
    kernel.arguments.push_back(std::move(argument));
  }
  kernel.scalars = static_cast<uint32_t>(call.scalars.size());
  kernel.grain = call.grain;
}

void bindKernels(PlanT &plan) {
  forEachCall(plan, [&](const ProgramT &program, KernelT &call) {
    if (call.kernel < plan.kernels.size() && plan.kernels[call.kernel]->arguments.empty())
      declareKernel(*plan.kernels[call.kernel], program, call);
  });
  forEachCall(plan, [&](const ProgramT &, KernelT &call) {
    if (call.kernel < plan.kernels.size() && call.signature == 0)
      call.signature = kernelSignature(*plan.kernels[call.kernel]);
  });
  if (plan.code_hash.empty())
    plan.code_hash = codeHash(plan.code, plan.ptx);
}

void numberValues(PlanT &plan) {
  for (auto &program : plan.programs)
    for (auto &segment : program->segments) {
      const auto numbered = [](const auto &step) { return !step->values.empty(); };
      if (!segment->leaves.empty() || std::any_of(segment->steps.begin(), segment->steps.end(), numbered))
        continue;
      std::map<uint32_t, uint32_t> holds;
      uint32_t made = check::firstMade;
      for (auto &step : segment->steps)
        for (const check::Access &access : check::accessesOf(*step)) {
          uint32_t &held = holds.try_emplace(access.slot, access.slot).first->second;
          step->values.push_back(access.kind == check::Access::Write ? held = made++ : held);
        }
      for (auto [slot, value] : holds)
        segment->leaves.emplace_back(slot, value);
    }
}

void forgetValues(PlanT &plan) {
  for (auto &program : plan.programs)
    for (auto &segment : program->segments) {
      segment->leaves.clear();
      for (auto &step : segment->steps)
        step->values.clear();
    }
}

std::vector<uint8_t> pack(const PlanT &plan) {
  flatbuffers::FlatBufferBuilder builder;
  FinishPlanBuffer(builder, Plan::Pack(builder, &plan));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

void nameAxes(PlanT &plan) {
  for (uint32_t p = 0; p < plan.programs.size(); ++p) {
    const auto rank =
        std::find_if(plan.ranks.begin(), plan.ranks.end(), [&](const auto &r) { return r->program == p; });
    for (auto &segment : plan.programs[p]->segments)
      for (auto &step : segment->steps) {
        CollectiveT *op = step->op.AsCollective();
        if (!op || !op->axes.empty() || rank == plan.ranks.end() || op->group >= (*rank)->groups.size() ||
            (*rank)->groups[op->group] >= plan.groups.size())
          continue;
        std::istringstream names(plan.groups[(*rank)->groups[op->group]]->axis);
        for (std::string name; std::getline(names, name, '+');)
          for (size_t axis = 0; axis < plan.mesh.size(); ++axis)
            if (plan.mesh[axis]->name == name)
              op->axes.push_back(static_cast<uint8_t>(axis));
      }
  }
}

/// Programs whose stages nobody has set get the coordinate of their ranks on axis pp, the last one.
static void setStages(PlanT &plan) {
  if (std::ranges::any_of(plan.programs, [](const auto &program) { return program->stage != 0; }))
    return;
  for (const auto &rank : plan.ranks)
    if (rank->program < plan.programs.size() && plan.mesh.size() == 3 && rank->coords.size() == 3)
      plan.programs[rank->program]->stage = rank->coords[2];
}

std::vector<uint8_t> flatbuffer(const PlanT &given) {
  PlanT plan(given);
  setStages(plan);
  bindKernels(plan);
  nameAxes(plan);
  std::vector<uint8_t> bytes = pack(plan);
  if (!checkPlanStructure(*GetPlan(bytes.data())).empty())
    return bytes;
  numberValues(plan);
  return pack(plan);
}

std::shared_ptr<const PlanFile> seal(const PlanT &plan) {
  return PlanFile::fromBytes(sealPlan(flatbuffer(plan)), "test");
}

} // namespace cleave::test
