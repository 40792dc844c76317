// Pooling on plain layouts. The workspace slot holds the indices of maxima in oneDNN's format.
#include "runtime/base/Error.h"
#include "runtime/device/OneDnn.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

namespace cleave {

namespace {

using dnnl::memory;
using tag = memory::format_tag;

struct PoolDescs {
  memory::desc src, dst;
  memory::dims strides, kernel, padBegin, padEnd;
  dnnl::algorithm algorithm;
};

PoolDescs describe(const plan::Pool &op, SlotScope &scope) {
  PoolDescs d;
  tag layout = op.nhwc() ? tag::nhwc : tag::nchw;
  d.src = {{op.n(), op.c(), op.ih(), op.iw()}, oneDnnType(scope.slot(op.src()).dtype()), layout};
  d.dst = {{op.n(), op.c(), op.oh(), op.ow()}, oneDnnType(scope.slot(op.dst()).dtype()), layout};
  d.strides = {op.stride_h(), op.stride_w()};
  d.kernel = {op.kh(), op.kw()};
  d.padBegin = {op.pad_top(), op.pad_left()};
  d.padEnd = {(op.oh() - 1) * op.stride_h() + op.kh() - op.ih() - op.pad_top(),
              (op.ow() - 1) * op.stride_w() + op.kw() - op.iw() - op.pad_left()};
  bool max = op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::MaxBackward;
  d.algorithm = max                    ? dnnl::algorithm::pooling_max
                : op.include_padding() ? dnnl::algorithm::pooling_avg_include_padding
                                       : dnnl::algorithm::pooling_avg_exclude_padding;
  return d;
}

class PoolOp final : public Op {
public:
  explicit PoolOp(BoundPrimitive primitive) : primitive(std::move(primitive)) {}
  void run(SlotTable slots, const RunContext &) override { primitive.run(slots); }

private:
  BoundPrimitive primitive;
};

class EmptyPool final : public Op {
public:
  void run(SlotTable, const RunContext &) override {}
};

void bindPlaces(BoundPrimitive &bound, const plan::Pool &op, SlotScope &scope, const memory::desc &places) {
  if (op.workspace() < 0)
    throw environmentError("plan: max pooling needs a workspace slot, found none");
  const plan::Slot &slot = scope.slot(static_cast<uint32_t>(op.workspace()));
  if (places.get_size() > slot.bytes())
    throw environmentError(
        fmt::format("cpu: max pooling keeps {} bytes of places, its slot has {}", places.get_size(), slot.bytes()));
  bound.bindSlot(DNNL_ARG_WORKSPACE, places, {scope.local(static_cast<uint32_t>(op.workspace()))});
}

} // namespace

std::unique_ptr<Op> makeOneDnnPool(const plan::Step &step, SlotScope &scope, OneDnnContext &context) {
  const plan::Pool &op = *step.op_as_Pool();
  if (op.n() == 0 || op.c() == 0)
    return std::make_unique<EmptyPool>();
  PoolDescs d = describe(op, scope);
  bool backward = op.kind() == plan::PoolKind::MaxBackward || op.kind() == plan::PoolKind::AverageBackward;
  bool max = d.algorithm == dnnl::algorithm::pooling_max;
  dnnl::pooling_forward::desc forward(dnnl::prop_kind::forward_training, d.algorithm, d.src, d.dst, d.strides, d.kernel,
                                      d.padBegin, d.padEnd);
  dnnl::pooling_forward::primitive_desc forwardDesc(forward, userScratchpad(), context.engine);
  StepOperand src{scope.local(op.src())}, dst{scope.local(op.dst())};
  size_t used = 0;
  auto addScratch = [&](BoundPrimitive &bound, const memory::desc &scratch) {
    bound.bindWorkspace(DNNL_ARG_SCRATCHPAD, scratch, context.workspace.reserve(used, scratch.get_size()));
  };
  if (!backward) {
    BoundPrimitive bound(context, dnnl::pooling_forward(forwardDesc));
    bound.bindSlot(DNNL_ARG_SRC, d.src, src);
    bound.bindSlot(DNNL_ARG_DST, d.dst, dst);
    if (max)
      bindPlaces(bound, op, scope, forwardDesc.workspace_desc());
    addScratch(bound, forwardDesc.scratchpad_desc());
    return std::make_unique<PoolOp>(std::move(bound));
  }
  dnnl::pooling_backward::desc back(d.algorithm, d.src, d.dst, d.strides, d.kernel, d.padBegin, d.padEnd);
  dnnl::pooling_backward::primitive_desc backDesc(back, userScratchpad(), context.engine, forwardDesc);
  BoundPrimitive bound(context, dnnl::pooling_backward(backDesc));
  bound.bindSlot(DNNL_ARG_DIFF_SRC, d.src, src);
  bound.bindSlot(DNNL_ARG_DIFF_DST, d.dst, dst);
  if (max)
    bindPlaces(bound, op, scope, backDesc.workspace_desc());
  addScratch(bound, backDesc.scratchpad_desc());
  return std::make_unique<PoolOp>(std::move(bound));
}

} // namespace cleave
