// Pooling on plain layouts. The workspace slot holds the indices of maxima in oneDNN's format. oneDNN's maximum ignores
// NaN, so windows with a NaN are corrected afterwards.
#include "runtime/base/Error.h"
#include "runtime/device/OneDnn.h"
#include "runtime/device/Parallel.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <atomic>
#include <cmath>
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

/// Whether one of `count` elements is NaN: without its sign, its bits are above those of infinity.
template <typename Bits> bool anyNan(const std::byte *data, int64_t count, Bits infinity, unsigned threads) {
  const auto *bits = reinterpret_cast<const Bits *>(data);
  const auto magnitude = static_cast<Bits>(~(Bits{1} << (sizeof(Bits) * 8 - 1)));
  constexpr int64_t block = 4096;
  std::atomic<bool> found = false;
  parallelRange(threads, count, block, [&](int64_t begin, int64_t end) {
    for (; begin < end && !found.load(std::memory_order_relaxed); begin += block) {
      Bits any = 0;
      for (int64_t i = begin; i < std::min(begin + block, end); ++i)
        any |= static_cast<Bits>((bits[i] & magnitude) > infinity);
      if (any)
        found.store(true, std::memory_order_relaxed);
    }
  });
  return found;
}

/// The maximum of each window: the last NaN if there is one, as in PyTorch.
class MaxPoolOp final : public Op {
public:
  MaxPoolOp(const plan::Pool &op, SlotScope &scope, BoundPrimitive primitive, bool wide, unsigned threads)
      : op(op), primitive(std::move(primitive)), src{scope.local(op.src())}, dst{scope.local(op.dst())},
        places{scope.local(static_cast<uint32_t>(op.workspace()))}, wide(wide), threads(threads) {}

  void run(SlotTable slots, const RunContext &) override {
    primitive.run(slots);
    const int64_t count = op.n() * op.c() * op.ih() * op.iw();
    if (op.dtype() == plan::DType::BF16 ? anyNan<uint16_t>(src.at(slots), count, 0x7f80, threads)
                                        : anyNan<uint32_t>(src.at(slots), count, 0x7f800000, threads))
      parallelRange(threads, op.n() * op.c(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane)
          correct(plane, slots);
      });
  }

private:
  /// Element (y, x) of a plane of images.
  int64_t at(int64_t plane, int64_t h, int64_t w, int64_t y, int64_t x) const {
    return op.nhwc() ? ((plane / op.c() * h + y) * w + x) * op.c() + plane % op.c() : (plane * h + y) * w + x;
  }

  void correct(int64_t plane, SlotTable slots) {
    for (int64_t y = 0; y < op.oh(); ++y)
      for (int64_t x = 0; x < op.ow(); ++x) {
        const int64_t place =
            lastNan(plane, y * op.stride_h() - op.pad_top(), x * op.stride_w() - op.pad_left(), slots);
        if (place < 0)
          continue;
        const int64_t window = at(plane, op.oh(), op.ow(), y, x);
        storeElement(dst.at(slots), window, op.dtype(), NAN);
        if (wide)
          reinterpret_cast<int32_t *>(places.at(slots))[window] = static_cast<int32_t>(place);
        else
          reinterpret_cast<uint8_t *>(places.at(slots))[window] = static_cast<uint8_t>(place);
      }
  }

  /// Index of the last NaN in the window that begins at (top, left); -1 if there is none.
  int64_t lastNan(int64_t plane, int64_t top, int64_t left, SlotTable slots) const {
    for (int64_t place = op.kh() * op.kw(); place-- > 0;) {
      const int64_t y = top + place / op.kw(), x = left + place % op.kw();
      if (y >= 0 && y < op.ih() && x >= 0 && x < op.iw() &&
          std::isnan(loadElement(src.at(slots), at(plane, op.ih(), op.iw(), y, x), op.dtype())))
        return place;
    }
    return -1;
  }

  const plan::Pool &op;
  BoundPrimitive primitive;
  StepOperand src, dst, places;
  bool wide; ///< places are 32-bit numbers, not bytes
  unsigned threads;
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
    const memory::desc places = forwardDesc.workspace_desc();
    if (max)
      bindPlaces(bound, op, scope, places);
    addScratch(bound, forwardDesc.scratchpad_desc());
    if (!max)
      return std::make_unique<PoolOp>(std::move(bound));
    if (places != memory::desc(d.dst.dims(), places.data_type(), op.nhwc() ? tag::nhwc : tag::nchw))
      throw environmentError("cpu: oneDNN keeps the places of maxima in an unknown layout");
    return std::make_unique<MaxPoolOp>(op, scope, std::move(bound), places.data_type() != memory::data_type::u8,
                                       context.threads);
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
