// Collectives and messages as Ops on the host.
#include "runtime/executor/CommunicationOps.h"

#include "runtime/plan/plan_generated.h"

namespace cleave {

namespace {

class CollectiveOp final : public Op {
public:
  CollectiveOp(const plan::Collective &collective, SlotScope &scope, RankEndpoint &world)
      : kind(collective.kind()), reduce(collective.reduce()), dtype(collective.dtype()) {
    const plan::Group *group = scope.plan.groups()->Get(scope.rank.groups()->Get(collective.group()));
    communicator = &world.group(std::span(group->ranks()->data(), group->ranks()->size()));
    size_t count = collective.buffers() ? collective.buffers()->size() : 0;
    sizes.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      const plan::CollectiveBuffer *buffer = collective.buffers()->Get(i);
      in.push_back({scope.local(buffer->in())});
      out.push_back({scope.local(buffer->out())});
      if (buffer->sizes())
        sizes[i].assign(buffer->sizes()->begin(), buffer->sizes()->end());
      parts.push_back(
          {.count = buffer->count(), .outer = buffer->outer(), .inner = buffer->inner(), .sizes = sizes[i]});
    }
  }

  void run(SlotTable slots, const RunContext &) override {
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].in = in[i].at(slots);
      parts[i].out = out[i].at(slots);
    }
    communicator->run(kind, reduce, dtype, parts);
  }

private:
  plan::CollectiveKind kind;
  plan::ReduceKind reduce;
  plan::DType dtype;
  Communicator *communicator;
  std::vector<StepOperand> in, out;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<CollectivePart> parts;
};

class SendOp final : public Op {
public:
  SendOp(const plan::Send &send, SlotScope &scope, RankEndpoint &world)
      : slot{scope.local(send.slot())}, bytes(send.bytes()), peer(scope.rank.peers()->Get(send.peer())),
        tag(send.tag()), world(world) {}
  void run(SlotTable slots, const RunContext &context) override {
    world.send(slot.at(slots), bytes, peer, tag, context.microbatch);
  }

private:
  StepOperand slot;
  size_t bytes;
  unsigned peer;
  uint32_t tag;
  RankEndpoint &world;
};

class RecvOp final : public Op {
public:
  RecvOp(const plan::Recv &recv, SlotScope &scope, RankEndpoint &world)
      : slot{scope.local(recv.slot())}, bytes(recv.bytes()), peer(scope.rank.peers()->Get(recv.peer())),
        tag(recv.tag()), world(world) {}
  void run(SlotTable slots, const RunContext &context) override {
    world.recv(slot.at(slots), bytes, peer, tag, context.microbatch);
  }

private:
  StepOperand slot;
  size_t bytes;
  unsigned peer;
  uint32_t tag;
  RankEndpoint &world;
};

} // namespace

std::unique_ptr<Op> makeCommunicationOp(const plan::Step &step, SlotScope &scope, RankEndpoint &world) {
  if (const auto *collective = step.op_as_Collective())
    return std::make_unique<CollectiveOp>(*collective, scope, world);
  if (const auto *send = step.op_as_Send())
    return std::make_unique<SendOp>(*send, scope, world);
  if (const auto *recv = step.op_as_Recv())
    return std::make_unique<RecvOp>(*recv, scope, world);
  return nullptr;
}

} // namespace cleave
