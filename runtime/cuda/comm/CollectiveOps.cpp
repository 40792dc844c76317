// Collectives as one NCCL call if the layout allows it; otherwise packed and unpacked through scratch memory.
#include "runtime/cuda/comm/CollectiveOps.h"

#include "runtime/base/Error.h"
#include "runtime/cuda/kernels/KernelTypes.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace cleave::cuda {

NcclGroup::NcclGroup(const ncclUniqueId &id, std::vector<uint32_t> list, unsigned member)
    : ranks(std::move(list)), me(member) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  check(nccl().commInitRankConfig(&comm, static_cast<int>(ranks.size()), id, static_cast<int>(me), &config),
        fmt::format("communicator of ranks {}", fmt::join(ranks, ", ")));
}

NcclGroup::~NcclGroup() {
  if (!comm)
    return;
  if (registration)
    nccl().commDeregister(comm, registration);
  nccl().commDestroy(comm);
}

void NcclGroup::registerMemory(void *memory, size_t bytes) {
  // If a transport does not support registration, NCCL copies through its own buffers.
  if (comm && bytes && nccl().commRegister(comm, memory, bytes, &registration) != ncclSuccess)
    registration = nullptr;
}

std::string NcclGroup::problem() const {
  ncclResult_t result = ncclSuccess;
  if (comm && nccl().commGetAsyncError(comm, &result) == ncclSuccess && result != ncclSuccess &&
      result != ncclInProgress)
    return fmt::format("nccl: ranks {}: {}", fmt::join(ranks, ", "), nccl().getErrorString(result));
  return "";
}

void NcclGroup::abort() noexcept {
  if (comm)
    nccl().commAbort(comm);
  comm = nullptr;
}

void Mark::enqueue(CUstream stream) const {
  check(driver().memcpyDtoHAsync(at, devicePointer(numbers->data() + 4 * size_t{number}), 4, stream),
        "cuMemcpyDtoHAsync");
}

namespace {

ncclDataType_t typeOf(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return ncclFloat32;
  case plan::DType::F16:
    return ncclFloat16;
  case plan::DType::BF16:
    return ncclBfloat16;
  case plan::DType::I32:
    return ncclInt32;
  case plan::DType::I64:
    return ncclInt64;
  case plan::DType::I1:
  case plan::DType::U8:
    return ncclUint8;
  }
  throw environmentError(fmt::format("nccl: no data type for {}", dtypeName(dtype)));
}

/// A logical or of zeros and ones is their maximum.
ncclRedOp_t operationOf(plan::ReduceKind reduce) {
  switch (reduce) {
  case plan::ReduceKind::Sum:
    return ncclSum;
  case plan::ReduceKind::Min:
    return ncclMin;
  case plan::ReduceKind::Max:
  case plan::ReduceKind::Or:
    return ncclMax;
  }
  return ncclSum;
}

/// One buffer of a collective.
struct Buffer {
  StepOperand in, out;
  int64_t count, outer, inner;
  std::vector<int64_t> sizes;
  int64_t whole() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  bool even() const {
    return std::ranges::all_of(sizes, [&](int64_t size) { return size == sizes[0]; });
  }
  /// Whether every member's share is contiguous.
  bool dense() const { return outer == 1; }
};

class CollectiveOp final : public Op {
public:
  CollectiveOp(const plan::Collective &c, SlotScope &scope, NcclGroup *group, const Queue &queue, OwnKernels &kernels,
               CommunicationScratch &scratch, Mark mark)
      : kind(c.kind()), type(typeOf(c.dtype())), reduce(operationOf(c.reduce())),
        element(static_cast<int64_t>(dtypeSize(c.dtype()))), group(group), queue(queue), scratch(scratch), mark(mark),
        copy(kernels.function(fmt::format("cleave_copy_{}", element))) {
    for (uint32_t i = 0; c.buffers() && i < c.buffers()->size(); ++i) {
      const plan::CollectiveBuffer *b = c.buffers()->Get(i);
      Buffer buffer{{scope.local(b->in())}, {scope.local(b->out())}, b->count(), b->outer(), b->inner(), {}};
      if (b->sizes())
        buffer.sizes.assign(b->sizes()->begin(), b->sizes()->end());
      const bool packed =
          (kind == plan::CollectiveKind::AllGather || kind == plan::CollectiveKind::ReduceScatter) && !buffer.dense();
      if (packed)
        scratch.bytes = std::max(scratch.bytes, bytesOf(buffer.outer * buffer.whole() * buffer.inner));
      (packed ? packedBuffers : buffers).push_back(std::move(buffer));
    }
  }

  void run(SlotTable slots, const RunContext &) override {
    if (!group)
      return copyAlone(slots);
    mark.enqueue(queue.stream);
    check(nccl().groupStart(), mark.name);
    for (const Buffer &b : buffers)
      start(b, b.in.at(slots), b.out.at(slots));
    check(nccl().groupEnd(), mark.name);
    for (const Buffer &b : packedBuffers)
      throughScratch(b, b.in.at(slots), b.out.at(slots));
  }

private:
  size_t bytesOf(int64_t elements) const { return static_cast<size_t>(elements * element); }
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(queue.stream); }

  /// A group with one member: copies the input to the output.
  void copyAlone(SlotTable slots) {
    for (const auto *list : {&buffers, &packedBuffers})
      for (const Buffer &b : *list) {
        const bool share = !b.sizes.empty();
        const size_t bytes = bytesOf(share ? b.outer * b.whole() * b.inner : b.count);
        if (bytes && b.in.at(slots) != b.out.at(slots))
          check(driver().memcpyDtoDAsync(devicePointer(b.out.at(slots)), devicePointer(b.in.at(slots)), bytes,
                                         queue.stream),
                "cuMemcpyDtoDAsync");
      }
  }

  void start(const Buffer &b, const std::byte *in, std::byte *out) {
    const auto count = static_cast<size_t>(b.count);
    switch (kind) {
    case plan::CollectiveKind::AllReduce:
      return check(nccl().allReduce(in, out, count, type, reduce, group->get(), stream()), mark.name);
    case plan::CollectiveKind::Broadcast:
      return check(nccl().broadcast(in, out, count, type, 0, group->get(), stream()), mark.name);
    case plan::CollectiveKind::AllGather:
      return gather(b, in, out);
    case plan::CollectiveKind::ReduceScatter:
      return scatter(b, in, out);
    case plan::CollectiveKind::AllToAll:
      return exchange(b, in, out);
    }
  }

  /// Gathers shares into `out`, one after another.
  void gather(const Buffer &b, const std::byte *in, std::byte *out) {
    const int64_t unit = b.outer * b.inner;
    if (b.even())
      return check(nccl().allGather(in, out, static_cast<size_t>(b.sizes[0] * unit), type, group->get(), stream()),
                   mark.name);
    for (unsigned m = 0; m < group->size(); out += bytesOf(b.sizes[m++] * unit))
      if (b.sizes[m] > 0)
        check(nccl().broadcast(in, out, static_cast<size_t>(b.sizes[m] * unit), type, static_cast<int>(m), group->get(),
                               stream()),
              mark.name);
  }

  /// Scatters from `in`, which has the shares one after another.
  void scatter(const Buffer &b, const std::byte *in, std::byte *out) {
    const int64_t unit = b.outer * b.inner;
    if (b.even())
      return check(
          nccl().reduceScatter(in, out, static_cast<size_t>(b.sizes[0] * unit), type, reduce, group->get(), stream()),
          mark.name);
    for (unsigned m = 0; m < group->size(); in += bytesOf(b.sizes[m++] * unit))
      if (b.sizes[m] > 0)
        check(nccl().reduce(in, out, static_cast<size_t>(b.sizes[m] * unit), type, reduce, static_cast<int>(m),
                            group->get(), stream()),
              mark.name);
  }

  void exchange(const Buffer &b, const std::byte *in, std::byte *out) {
    const int64_t block = b.count / group->size();
    for (unsigned m = 0; m < group->size(); ++m) {
      const auto count = static_cast<size_t>(block);
      check(nccl().send(in + bytesOf(block * m), count, type, static_cast<int>(m), group->get(), stream()), mark.name);
      check(nccl().recv(out + bytesOf(block * m), count, type, static_cast<int>(m), group->get(), stream()), mark.name);
    }
  }

  /// Copies between the whole tensor [outer, sum of sizes, inner] and the concatenated shares.
  void move(const Buffer &b, const std::byte *whole, std::byte *shares, bool unpack) {
    int64_t start = 0;
    for (unsigned m = 0; m < group->size(); start += b.sizes[m++]) {
      const int64_t row = b.sizes[m] * b.inner, wholeRow = b.whole() * b.inner;
      const std::byte *piece = whole + bytesOf(start * b.inner);
      std::byte *share = shares + bytesOf(start * b.inner * b.outer);
      CopyArguments a{};
      a.from = unpack ? share : piece;
      a.to = unpack ? const_cast<std::byte *>(piece) : share;
      a.dims = 2;
      a.size[0] = b.outer, a.size[1] = row;
      a.src[0] = unpack ? row : wholeRow, a.dst[0] = unpack ? wholeRow : row;
      a.src[1] = a.dst[1] = 1;
      a.total = b.outer * row;
      OwnKernels::start(copy, queue, a, a.total);
    }
  }

  void throughScratch(const Buffer &b, const std::byte *in, std::byte *out) {
    const bool gathers = kind == plan::CollectiveKind::AllGather;
    if (!gathers)
      move(b, in, scratch.memory, false);
    check(nccl().groupStart(), mark.name);
    if (gathers)
      gather(b, in, scratch.memory);
    else
      scatter(b, scratch.memory, out);
    check(nccl().groupEnd(), mark.name);
    if (gathers)
      move(b, out, scratch.memory, true);
  }

  plan::CollectiveKind kind;
  ncclDataType_t type;
  ncclRedOp_t reduce;
  int64_t element;
  NcclGroup *group;
  const Queue &queue;
  CommunicationScratch &scratch;
  Mark mark;
  CUfunction copy;
  std::vector<Buffer> buffers, packedBuffers;
};

class MessageOp final : public Op {
public:
  MessageOp(StepOperand slot, size_t bytes, bool sends, NcclGroup &group, const Queue &queue, Mark mark)
      : slot(slot), bytes(bytes), sends(sends), group(group), queue(queue), mark(mark) {}
  void run(SlotTable slots, const RunContext &) override {
    mark.enqueue(queue.stream);
    const auto stream = reinterpret_cast<cudaStream_t>(queue.stream);
    if (sends)
      check(nccl().send(slot.at(slots), bytes, ncclUint8, 1, group.get(), stream), mark.name);
    else
      check(nccl().recv(slot.at(slots), bytes, ncclUint8, 0, group.get(), stream), mark.name);
  }

private:
  StepOperand slot;
  size_t bytes;
  bool sends;
  NcclGroup &group;
  const Queue &queue;
  Mark mark;
};

} // namespace

std::unique_ptr<Op> makeCollectiveOp(const plan::Collective &collective, SlotScope &scope, NcclGroup *group,
                                     const Queue &queue, OwnKernels &kernels, CommunicationScratch &scratch,
                                     Mark mark) {
  return std::make_unique<CollectiveOp>(collective, scope, group, queue, kernels, scratch, mark);
}

std::unique_ptr<Op> makeMessageOp(const plan::Step &step, SlotScope &scope, NcclGroup &group, const Queue &queue,
                                  Mark mark) {
  const auto *send = step.op_as_Send();
  const auto *recv = step.op_as_Recv();
  return std::make_unique<MessageOp>(StepOperand{scope.local(send ? send->slot() : recv->slot())},
                                     static_cast<size_t>(send ? send->bytes() : recv->bytes()), send != nullptr, group,
                                     queue, mark);
}

} // namespace cleave::cuda
