// The parts of slots that a step accesses.
#include "runtime/plan/CheckParts.h"
#include "runtime/plan/DTypes.h"

#include <algorithm>

namespace cleave::check {

namespace {

using Fn = std::function<void(const Access &)>;

struct Accesses {
  const plan::Program &program;
  const Fn &fn;
  const plan::Plan *plan;

  uint64_t slotBytes(uint32_t slot) const {
    return slot < length(program.slots()) ? program.slots()->Get(slot)->bytes() : 0;
  }
  uint64_t elementBytes(uint32_t slot) const {
    return slot < length(program.slots()) ? dtypeSize(program.slots()->Get(slot)->dtype()) : 1;
  }
  void read(uint32_t slot, uint64_t elements) const { fn({Access::Read, slot, 0, elements * elementBytes(slot)}); }
  void write(uint32_t slot, uint64_t elements, bool accumulate = false) const {
    Access access{Access::Write, slot, 0, elements * elementBytes(slot)};
    emit(access, accumulate);
  }
  void emit(Access &access, bool accumulate) const {
    if (accumulate) {
      access.kind = Access::Read;
      access.accumulated = true;
      fn(access);
      access.kind = Access::Write;
      access.accumulated = false;
    }
    fn(access);
  }
  /// Reports a strided window of the given sizes; a written window may accumulate.
  void window(Access::Kind kind, const plan::View *view, const std::vector<int64_t> &sizes, uint64_t element,
              bool accumulate = false) const {
    std::vector<Access::Repeat> dims;
    unsigned __int128 span = element;
    bool empty = false; // an empty window still needs a valid slot
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      empty = empty || sizes[d] == 0;
      Access::Repeat dim{static_cast<uint64_t>(sizes[d]), static_cast<uint64_t>(view->strides()->Get(d)) * element};
      span += static_cast<unsigned __int128>(dim.count ? dim.count - 1 : 0) * dim.stride;
      if (dim.count > 1)
        dims.push_back(dim);
    }
    constexpr uint64_t beyond = 2 * largest; // more than any slot
    Access access{kind, view->slot(), view->offset(), beyond};
    if (empty) {
      access.bytes = 0;
    } else if (span < beyond) {
      access.bytes = static_cast<uint64_t>(span);
      joinDims(dims, element, access);
    }
    emit(access, accumulate);
  }

private:
  /// Merges contiguous dimensions.
  static void joinDims(std::vector<Access::Repeat> &dims, uint64_t element, Access &access) {
    std::sort(dims.begin(), dims.end(), [](const auto &a, const auto &b) { return a.stride < b.stride; });
    access.run = element;
    uint64_t below = element; // bytes spanned by the dimensions so far
    for (const Access::Repeat &dim : dims) {
      access.twice = access.twice || dim.stride < below;
      below += (dim.count - 1) * dim.stride;
      if (access.repeats.empty() && dim.stride <= access.run)
        access.run = below;
      else if (!access.repeats.empty() && dim.stride == access.repeats.back().count * access.repeats.back().stride)
        access.repeats.back().count *= dim.count;
      else
        access.repeats.push_back(dim);
    }
  }
};

uint64_t product(std::initializer_list<int64_t> sizes) {
  uint64_t all = 1;
  for (int64_t size : sizes)
    all *= static_cast<uint64_t>(size);
  return all;
}

void matmul(const plan::Matmul &op, const Accesses &a) {
  auto sizes = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> list;
    if (op.batch())
      list.assign(op.batch()->begin(), op.batch()->end());
    list.push_back(rows);
    list.push_back(columns);
    return list;
  };
  a.window(Access::Read, op.a(), sizes(op.m(), op.k()), a.elementBytes(op.a()->slot()));
  a.window(Access::Read, op.b(), sizes(op.k(), op.n()), a.elementBytes(op.b()->slot()));
  if (op.bias() >= 0)
    a.read(static_cast<uint32_t>(op.bias()), static_cast<uint64_t>(op.n()));
  a.window(Access::Write, op.c(), sizes(op.m(), op.n()), a.elementBytes(op.c()->slot()), op.accumulate());
  if (op.aux())
    a.window(op.epilogue() == plan::Epilogue::Gelu ? Access::Write : Access::Read, op.aux(), sizes(op.m(), op.n()),
             a.elementBytes(op.aux()->slot()));
  if (op.row_sums() >= 0)
    a.write(static_cast<uint32_t>(op.row_sums()), static_cast<uint64_t>(op.m()));
}

void conv(const plan::Conv &op, const Accesses &a) {
  uint64_t src = product({op.n(), op.ic(), op.ih(), op.iw()}), dst = product({op.n(), op.oc(), op.oh(), op.ow()});
  uint64_t weights = op.groups() > 0 ? product({op.oc(), op.ic() / op.groups(), op.kh(), op.kw()}) : 0;
  bool forward = op.kind() == plan::ConvKind::Forward, data = op.kind() == plan::ConvKind::BackwardData;
  if (!data)
    a.read(op.src(), src);
  if (forward || data)
    a.read(op.weights(), weights);
  if (!forward)
    a.read(op.dst(), dst);
  if (op.bias() >= 0)
    a.read(static_cast<uint32_t>(op.bias()), static_cast<uint64_t>(op.oc()));
  if (forward)
    a.write(op.dst(), dst, op.accumulate());
  else
    data ? a.write(op.src(), src, op.accumulate()) : a.write(op.weights(), weights, op.accumulate());
}

void pool(const plan::Pool &op, const Accesses &a) {
  uint64_t src = product({op.n(), op.c(), op.ih(), op.iw()}), dst = product({op.n(), op.c(), op.oh(), op.ow()});
  bool forward = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::AverageForward;
  forward ? a.read(op.src(), src) : a.read(op.dst(), dst);
  if (op.kind() == plan::PoolKind::MaxBackward && op.workspace() >= 0)
    a.read(static_cast<uint32_t>(op.workspace()), dst);
  if (op.kind() == plan::PoolKind::MaxForward && op.workspace() >= 0)
    a.write(static_cast<uint32_t>(op.workspace()), dst);
  forward ? a.write(op.dst(), dst) : a.write(op.src(), src);
}

void attention(const plan::Attention &op, const Accesses &a) {
  const std::vector<int64_t> queries{op.batch(), op.heads(), op.rows(), op.width()},
      keys{op.batch(), op.heads(), op.keys(), op.width()};
  const uint64_t sums = product({op.batch(), op.heads(), op.rows()}), element = dtypeSize(op.dtype());
  a.window(Access::Read, op.q(), queries, element);
  a.window(Access::Read, op.k(), keys, element);
  a.window(Access::Read, op.v(), keys, element);
  if (op.kind() == plan::AttentionKind::Forward) {
    a.window(Access::Write, op.out(), queries, element);
    if (op.lse() >= 0)
      a.write(static_cast<uint32_t>(op.lse()), sums);
    return;
  }
  a.window(Access::Read, op.out(), queries, element);
  a.window(Access::Read, op.dout(), queries, element);
  a.read(static_cast<uint32_t>(op.lse()), sums);
  a.window(Access::Write, op.dq(), queries, element);
  a.window(Access::Write, op.dk(), keys, element);
  a.window(Access::Write, op.dv(), keys, element);
}

/// Reports the arguments from `first` to `end`.
void arguments(const plan::Kernel &op, uint32_t first, uint32_t end, const Accesses &a, int part = -1) {
  for (uint32_t i = first; i < end; ++i) {
    const uint32_t slot = op.args()->Get(i);
    Access::Kind kind = op.outputs() == 0                       ? Access::Unknown
                        : i + op.outputs() >= length(op.args()) ? Access::Write
                                                                : Access::Read;
    Access access{kind, slot, 0, a.plan ? argumentBytes(*a.plan, op, i) : a.slotBytes(slot)};
    access.part = part;
    a.fn(access);
  }
}

void kernelBatch(const plan::KernelBatch &op, const Accesses &a) {
  for (bool write : {false, true})
    for (uint32_t i = 0; i < length(op.calls()); ++i) {
      const plan::Kernel &call = *op.calls()->Get(i);
      const uint32_t count = length(call.args()), inputs = count - std::min(call.outputs(), count);
      arguments(call, write ? inputs : 0, write ? count : inputs, a, static_cast<int>(i));
    }
}

void collective(const plan::Collective &op, const Accesses &a) {
  for (uint32_t i = 0; i < length(op.buffers()); ++i) {
    const plan::CollectiveBuffer *buffer = op.buffers()->Get(i);
    auto count = static_cast<uint64_t>(buffer->count());
    uint64_t whole = 0;
    if (buffer->sizes())
      for (int64_t size : *buffer->sizes())
        whole += static_cast<uint64_t>(size);
    whole *= product({buffer->outer(), buffer->inner()});
    // A member's own share is the content of its slot; its size is checked together with the group.
    uint64_t inAll = a.slotBytes(buffer->in()) / a.elementBytes(buffer->in());
    uint64_t outAll = a.slotBytes(buffer->out()) / a.elementBytes(buffer->out());
    bool gather = op.kind() == plan::CollectiveKind::AllGather,
         scatter = op.kind() == plan::CollectiveKind::ReduceScatter;
    auto touch = [&](Access::Kind kind, uint32_t slot, uint64_t elements) {
      Access access{kind, slot, 0, elements * a.elementBytes(slot)};
      access.part = static_cast<int>(i);
      a.fn(access);
    };
    touch(Access::Read, buffer->in(), scatter ? whole : gather ? std::min(inAll, whole) : count);
    touch(Access::Write, buffer->out(), gather ? whole : scatter ? std::min(outAll, whole) : count);
  }
}

} // namespace

bool sane(std::initializer_list<int64_t> sizes) {
  uint64_t all = 1;
  for (int64_t size : sizes) {
    if (size < 0 || static_cast<uint64_t>(size) > largest || (size && all > largest / static_cast<uint64_t>(size)))
      return false;
    all *= static_cast<uint64_t>(std::max<int64_t>(1, size));
  }
  return true;
}

void forEachAccess(const plan::Step &step, const plan::Program &program, const Fn &fn, const plan::Plan *plan) {
  Accesses a{program, fn, plan};
  if (const auto *op = step.op_as_Matmul())
    return matmul(*op, a);
  if (const auto *op = step.op_as_Conv())
    return conv(*op, a);
  if (const auto *op = step.op_as_Pool())
    return pool(*op, a);
  if (const auto *op = step.op_as_Attention())
    return attention(*op, a);
  if (const auto *op = step.op_as_Kernel())
    return arguments(*op, 0, length(op->args()), a);
  if (const auto *op = step.op_as_KernelBatch())
    return kernelBatch(*op, a);
  if (const auto *op = step.op_as_Collective())
    return collective(*op, a);
  if (const auto *op = step.op_as_Copy()) {
    std::vector<int64_t> sizes;
    if (op->shape())
      sizes.assign(op->shape()->begin(), op->shape()->end());
    if (op->src_offset_scalar() >= 0) // the start differs between ranks
      fn({Access::Read, op->src()->slot(), 0, a.slotBytes(op->src()->slot())});
    else
      a.window(Access::Read, op->src(), sizes, dtypeSize(op->dtype()));
    return a.window(Access::Write, op->dst(), sizes, dtypeSize(op->dtype()));
  }
  if (const auto *op = step.op_as_Fill())
    return fn({Access::Write, op->dst(), 0, a.slotBytes(op->dst())});
  if (const auto *op = step.op_as_Embedding()) {
    a.read(op->table(), product({op->rows(), op->width()}));
    a.read(op->ids(), static_cast<uint64_t>(op->count()));
    return a.write(op->out(), product({op->count(), op->width()}));
  }
  if (const auto *op = step.op_as_EmbeddingGrad()) {
    a.read(op->ids(), static_cast<uint64_t>(op->count()));
    a.read(op->grad(), product({op->count(), op->width()}));
    return a.write(op->dtable(), product({op->rows(), op->width()}), op->accumulate());
  }
  if (const auto *op = step.op_as_Gather()) {
    a.read(op->src(), product({op->outer(), op->extent(), op->inner()}));
    a.read(op->index(), product({op->outer(), op->count(), op->inner()}));
    return a.write(op->out(), product({op->outer(), op->count(), op->inner()}));
  }
  if (const auto *op = step.op_as_ScatterAdd()) {
    a.read(op->src(), product({op->outer(), op->count(), op->inner()}));
    a.read(op->index(), product({op->outer(), op->count(), op->inner()}));
    return a.write(op->out(), product({op->outer(), op->extent(), op->inner()}));
  }
  if (const auto *op = step.op_as_Random())
    return fn({Access::Write, op->out(), 0, a.slotBytes(op->out())});
  if (const auto *op = step.op_as_Send())
    return fn({Access::Read, op->slot(), 0, op->bytes()});
  if (const auto *op = step.op_as_Recv())
    return fn({Access::Write, op->slot(), 0, op->bytes()});
}

std::vector<Access> accessesOf(const plan::StepT &step) {
  flatbuffers::FlatBufferBuilder builder;
  const auto made = plan::Step::Pack(builder, &step);
  const auto none = plan::CreateProgram(builder);
  builder.Finish(made);
  std::vector<Access> list;
  forEachAccess(*flatbuffers::GetRoot<plan::Step>(builder.GetBufferPointer()),
                *flatbuffers::GetTemporaryPointer(builder, none), [&](const Access &access) { list.push_back(access); });
  return list;
}

std::string placeOf(uint32_t program, const plan::Program &info, uint32_t segment, uint32_t step) {
  const plan::Segment *s = info.segments()->Get(segment);
  std::string name = s->name() ? s->name()->str() : "";
  return fmt::format("program {}, segment {}{}, step {} ({})", program, segment, name.empty() ? "" : " (" + name + ")",
                     step, EnumNameStepOp(s->steps()->Get(step)->op_type()));
}

} // namespace cleave::check
