// Copies and fills.
#include "runtime/base/Error.h"
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/cuda/kernels/KernelTypes.h"
#include "runtime/device/CopyShape.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace cleave::cuda {

namespace {

/// A copy of contiguous bytes.
class DenseCopy final : public Op {
public:
  DenseCopy(StepOperand src, StepOperand dst, size_t bytes, const Queue &queue)
      : src(src), dst(dst), bytes(bytes), queue(queue) {}
  void run(SlotTable slots, const RunContext &) override {
    if (bytes)
      check(driver().memcpyDtoDAsync(devicePointer(dst.at(slots)), devicePointer(src.at(slots)), bytes, queue.stream),
            "cuMemcpyDtoDAsync");
  }

private:
  StepOperand src, dst;
  size_t bytes;
  const Queue &queue;
};

class StridedCopy final : public Op {
public:
  StridedCopy(StepOperand src, StepOperand dst, const CopyArguments &arguments, CUfunction function, const Queue &queue)
      : src(src), dst(dst), arguments(arguments), function(function), queue(queue) {}
  void run(SlotTable slots, const RunContext &) override {
    arguments.from = src.at(slots);
    arguments.to = dst.at(slots);
    OwnKernels::start(function, queue, arguments, arguments.total);
  }

private:
  StepOperand src, dst;
  CopyArguments arguments;
  CUfunction function;
  const Queue &queue;
};

/// The widest unit of at most 16 bytes in which both sides can be accessed. Arenas are 256-byte aligned, so this
/// depends only on offsets and strides.
int64_t copyUnit(const std::vector<CopyDim> &dims, int64_t element, int64_t srcOffset, int64_t dstOffset) {
  int64_t unit = 16;
  const auto fits = [&](int64_t bytes) { return bytes % unit == 0; };
  for (; unit > element; unit /= 2) {
    bool all = dims.back().src == 1 && dims.back().dst == 1 && fits(dims.back().size * element) && fits(srcOffset) &&
               fits(dstOffset);
    for (size_t d = 0; d + 1 < dims.size(); ++d)
      all &= fits(dims[d].src * element) && fits(dims[d].dst * element);
    if (all)
      break;
  }
  return unit;
}

class FillOp final : public Op {
public:
  FillOp(StepOperand dst, std::array<std::byte, 8> pattern, size_t element, size_t count, const Queue &queue,
         OwnKernels &kernels)
      : dst(dst), element(element), count(count), queue(queue) {
    std::memcpy(&value8, pattern.data(), 1);
    std::memcpy(&value16, pattern.data(), 2);
    std::memcpy(&value32, pattern.data(), 4);
    std::memcpy(&high32, pattern.data() + 4, 4);
    if (element == 8) { // set the first element as two 32-bit halves, then copy it
      spread.dims = 1;
      spread.size[0] = spread.total = static_cast<int64_t>(count);
      spread.dst[0] = 1;
      spreadKernel = kernels.function("cleave_copy_8");
    }
  }
  void run(SlotTable slots, const RunContext &) override {
    const CUdeviceptr at = devicePointer(dst.at(slots));
    if (count == 0)
      return;
    if (element == 1)
      check(driver().memsetD8Async(at, value8, count, queue.stream), "cuMemsetD8Async");
    else if (element == 2)
      check(driver().memsetD16Async(at, value16, count, queue.stream), "cuMemsetD16Async");
    else
      check(driver().memsetD32Async(at, value32, element == 4 ? count : 1, queue.stream), "cuMemsetD32Async");
    if (element != 8)
      return;
    check(driver().memsetD32Async(at + 4, high32, 1, queue.stream), "cuMemsetD32Async");
    spread.from = spread.to = dst.at(slots);
    OwnKernels::start(spreadKernel, queue, spread, spread.total);
  }

private:
  StepOperand dst;
  size_t element, count;
  uint8_t value8 = 0;
  uint16_t value16 = 0;
  uint32_t value32 = 0, high32 = 0;
  CopyArguments spread{};
  CUfunction spreadKernel = nullptr;
  const Queue &queue;
};

} // namespace

std::unique_ptr<Op> makeOwnOp(const plan::Copy &copy, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  const auto element = static_cast<int64_t>(dtypeSize(copy.dtype()));
  StepOperand src = operandOf(*copy.src(), scope);
  src.offset += scope.scalar(copy.src_offset_scalar(), 0) * element;
  const StepOperand dst = operandOf(*copy.dst(), scope);
  std::vector<CopyDim> dims = copyDims(copy);
  if (dims.empty())
    dims.push_back({1, 1, 1});
  if (dims.size() > mostCopyDims)
    throw environmentError(fmt::format("cuda: a copy has at most {} dimensions, found {}", mostCopyDims, dims.size()));
  if (dims.size() == 1 && dims[0].src == 1 && dims[0].dst == 1)
    return std::make_unique<DenseCopy>(src, dst, static_cast<size_t>(dims[0].size * element), queue);
  const int64_t unit = copyUnit(dims, element, src.offset, dst.offset), joined = unit / element;
  CopyArguments arguments{};
  arguments.dims = static_cast<int32_t>(dims.size());
  arguments.total = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool last = d + 1 == dims.size();
    arguments.size[d] = last ? dims[d].size / joined : dims[d].size;
    arguments.src[d] = last ? dims[d].src : dims[d].src / joined;
    arguments.dst[d] = last ? dims[d].dst : dims[d].dst / joined;
    arguments.total *= arguments.size[d];
  }
  return std::make_unique<StridedCopy>(src, dst, arguments, kernels.function(fmt::format("cleave_copy_{}", unit)),
                                       queue);
}

std::unique_ptr<Op> makeOwnOp(const plan::Fill &fill, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  std::array<std::byte, 8> pattern{};
  storeElement(pattern.data(), 0, fill.dtype(), fill.value());
  const size_t element = dtypeSize(fill.dtype());
  return std::make_unique<FillOp>(StepOperand{scope.local(fill.dst())}, pattern, element,
                                  scope.slot(fill.dst()).bytes() / element, queue, kernels);
}

} // namespace cleave::cuda
