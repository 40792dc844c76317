// Images and threads of pooling; the loops inside are in PoolKernels.inc.
#include "runtime/device/Pool.h"

#include "runtime/base/Error.h"
#include "runtime/base/Target.h"
#include "runtime/device/Parallel.h"
#include "runtime/device/PoolKernels.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>
#include <optional>

namespace cleave {

namespace {

class PoolOp final : public Op {
public:
  PoolOp(const plan::Pool &op, SlotScope &scope, const PoolKernels &kernels, unsigned threads)
      : shape{ruleOf(op), op.nhwc() ? op.c() : 1, op.ih(),       op.iw(),      op.oh(),      op.ow(), op.kh(),
              op.kw(),    op.stride_h(),          op.stride_w(), op.pad_top(), op.pad_left()},
        images(op.nhwc() ? op.n() : op.n() * op.c()),
        back(op.kind() == plan::PoolKind::MaxBackward || op.kind() == plan::PoolKind::AverageBackward),
        half(op.dtype() == plan::DType::BF16), wide(op.kh() * op.kw() > 256), kernels(kernels),
        threads(threads), src{scope.local(op.src())}, dst{scope.local(op.dst())} {
    if (shape.rule != PoolRule::Largest)
      return;
    if (op.workspace() < 0)
      throw environmentError("plan: max pooling needs a workspace slot, found none");
    places = StepOperand{scope.local(static_cast<uint32_t>(op.workspace()))};
  }

  void run(SlotTable slots, const RunContext &) override {
    const int64_t elementBytes = half ? 2 : 4, placeBytes = wide ? 4 : 1;
    const int64_t inImage = shape.inH * shape.inW * shape.channels, outImage = shape.outH * shape.outW * shape.channels;
    const int64_t rows = back ? shape.inH : shape.outH;
    std::byte *in = src.at(slots), *out = dst.at(slots), *place = places ? places->at(slots) : nullptr;
    parallelRange(threads, images * rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t image = row / rows;
        std::byte *input = in + image * inImage * elementBytes, *output = out + image * outImage * elementBytes,
                  *found = place ? place + image * outImage * placeBytes : nullptr;
        if (back)
          kernels.backward[half][wide](shape, output, found, row % rows, input);
        else
          kernels.forward[half][wide](shape, input, row % rows, output, found);
      }
    });
  }

private:
  static PoolRule ruleOf(const plan::Pool &op) {
    if (op.kind() == plan::PoolKind::MaxForward || op.kind() == plan::PoolKind::MaxBackward)
      return PoolRule::Largest;
    return op.include_padding() ? PoolRule::AverageWithPadding : PoolRule::Average;
  }

  PoolShape shape;
  int64_t images;
  bool back, half, wide; ///< wide: places are 32-bit numbers, not bytes
  const PoolKernels &kernels;
  unsigned threads;
  StepOperand src, dst;
  std::optional<StepOperand> places;
};

} // namespace

std::unique_ptr<Op> makePool(const plan::Pool &op, SlotScope &scope, unsigned threads) {
  if (op.dtype() != plan::DType::F32 && op.dtype() != plan::DType::BF16)
    throw environmentError(fmt::format("cpu: pooling is f32 or bf16, found {}", dtypeName(op.dtype())));
  const PoolKernels &kernels = Target(Target::X86_64_v4).runsHere()   ? poolAvx512
                               : Target(Target::X86_64_v3).runsHere() ? poolAvx2
                                                                      : poolSse;
  return std::make_unique<PoolOp>(op, scope, kernels, threads);
}

} // namespace cleave
