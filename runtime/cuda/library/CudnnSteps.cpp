// Convolutions and attention as steps: binds slots to cuDNN graphs and chooses engines.
#include "runtime/base/Error.h"
#include "runtime/cuda/driver/Measure.h"
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/cuda/library/Cudnn.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>

namespace cleave::cuda {

namespace {

/// A cuDNN graph with its slots.
class CudnnOp final : public Op {
public:
  CudnnOp(std::unique_ptr<CudnnGraph> graph, std::vector<StepOperand> operands, CudnnHandle &handle, const Queue &queue)
      : graph(std::move(graph)), operands(std::move(operands)), handle(handle), queue(queue) {
    pointers.resize(this->operands.size());
  }

  void run(SlotTable slots, const RunContext &) override {
    for (size_t i = 0; i < operands.size(); ++i)
      pointers[i] = operands[i].at(slots);
    graph->run(handle, pointers, queue.workspace);
  }

  const CudnnGraph &prepared() const { return *graph; }

  /// Selects the fastest of the first candidates, measured on temporary memory. `bytes`: sizes of the slots.
  void chooseFastest(const std::vector<size_t> &bytes, size_t limit) {
    constexpr size_t most = 6;
    const std::vector<std::string> candidates = graph->candidates();
    if (candidates.size() < 2)
      return;
    std::vector<DeviceMemory> memory;
    for (size_t i = 0; i < operands.size(); ++i) {
      memory.emplace_back(std::max<size_t>(1, bytes[i]), "measuring");
      check(driver().memsetD8Async(devicePointer(memory[i].data()), 0x3c, memory[i].size(), queue.stream),
            "cuMemsetD8Async"); // small numbers in every type
      pointers[i] = memory[i].data() + operands[i].offset;
    }
    const DeviceMemory scratch(limit, "measuring");
    std::string fastest = graph->choice();
    double best = 0;
    for (size_t i = 0; i < std::min(most, candidates.size()); ++i) {
      try {
        graph->choose(candidates[i]);
        const double time = measure(queue.stream, [&] { graph->run(handle, pointers, scratch.data()); });
        if (best == 0 || time < best) {
          best = time;
          fastest = candidates[i];
        }
      } catch (const Error &) { // this candidate does not build or run on the device
      }
    }
    graph->choose(fastest);
  }

private:
  std::unique_ptr<CudnnGraph> graph;
  std::vector<StepOperand> operands;
  std::vector<void *> pointers;
  CudnnHandle &handle;
  const Queue &queue;
};

/// A slot and an offset into it.
struct Place {
  uint32_t slot;
  int64_t offset = 0;
};

/// Operands in the order of Cudnn::convolution.
std::vector<Place> placesOf(const plan::Conv &op) {
  const Place src{op.src()}, weights{op.weights()}, dst{op.dst()};
  switch (op.kind()) {
  case plan::ConvKind::Forward:
    if (op.bias() >= 0)
      return {src, weights, {static_cast<uint32_t>(op.bias())}, dst};
    return {src, weights, dst};
  case plan::ConvKind::BackwardData:
    return {dst, weights, src};
  case plan::ConvKind::BackwardWeights:
    return {src, dst, weights};
  }
  return {};
}

/// Operands in the order of Cudnn::attention.
std::vector<Place> placesOf(const plan::Attention &op) {
  const bool backward = op.kind() == plan::AttentionKind::Backward;
  const auto of = [](const plan::View *view) { return Place{view->slot(), static_cast<int64_t>(view->offset())}; };
  std::vector<Place> list{of(op.q()), of(op.k()), of(op.v()), of(op.out())};
  if (backward)
    list.push_back(of(op.dout()));
  if (op.lse() >= 0)
    list.push_back({static_cast<uint32_t>(op.lse())});
  if (backward)
    list.insert(list.end(), {of(op.dq()), of(op.dk()), of(op.dv())});
  return list;
}

/// A convolution over no samples: does nothing, or sets weight gradients to zero.
class EmptyConv final : public Op {
public:
  EmptyConv(StepOperand weights, size_t bytes, const Queue &queue) : weights(weights), bytes(bytes), queue(queue) {}
  void run(SlotTable slots, const RunContext &) override {
    if (bytes)
      check(driver().memsetD8Async(devicePointer(weights.at(slots)), 0, bytes, queue.stream), "cuMemsetD8Async");
  }

private:
  StepOperand weights;
  size_t bytes;
  const Queue &queue;
};

std::unique_ptr<Op> makeEmptyConv(const plan::Conv &op, SlotScope &scope, const Queue &queue) {
  for (const Place &place : placesOf(op))
    scope.local(place.slot);
  const bool zeros = op.kind() == plan::ConvKind::BackwardWeights && !op.accumulate();
  return std::make_unique<EmptyConv>(StepOperand{scope.local(op.weights())},
                                     zeros ? scope.slot(op.weights()).bytes() : 0, queue);
}

/// The key of a step in the tuning record.
std::string keyOf(const plan::Conv &op) {
  return fmt::format("conv {} n{} c{}x{}x{} to {}x{}x{} k{}x{} s{}x{} p{}x{}x{}x{} d{}x{} g{} {}{}{}{}{}",
                     plan::EnumNameConvKind(op.kind()), op.n(), op.ic(), op.ih(), op.iw(), op.oc(), op.oh(), op.ow(),
                     op.kh(), op.kw(), op.stride_h(), op.stride_w(), op.pad_top(), op.pad_left(), op.pad_bottom(),
                     op.pad_right(), op.dilation_h(), op.dilation_w(), op.groups(), plan::EnumNameDType(op.dtype()),
                     op.nhwc() ? " nhwc" : "", op.bias() >= 0 ? " bias" : "",
                     op.epilogue() == plan::Epilogue::Relu ? " relu" : "", op.accumulate() ? " accumulate" : "");
}

std::string keyOf(const plan::Attention &op) {
  std::string strides;
  for (const plan::View *view : {op.q(), op.k(), op.v(), op.out(), op.dout(), op.dq(), op.dk(), op.dv()})
    if (view)
      strides += fmt::format(" {}x{}x{}", view->strides()->Get(0), view->strides()->Get(1), view->strides()->Get(2));
  return fmt::format("attention {} b{} h{} rows{} keys{} width{} {}{}{}{}", plan::EnumNameAttentionKind(op.kind()),
                     op.batch(), op.heads(), op.rows(), op.keys(), op.width(), plan::EnumNameDType(op.dtype()),
                     op.causal() ? " causal" : "", op.lse() >= 0 ? " lse" : "", strides);
}

} // namespace

std::unique_ptr<Op> StepOps::makeCudnnStep(const plan::Step &step, SlotScope &scope, size_t &needed) {
  const auto *conv = step.op_as_Conv();
  const auto *attention = step.op_as_Attention();
  if (conv && conv->n() == 0) // this rank's share of the batch is empty
    return makeEmptyConv(*conv, scope, queue);
  Cudnn &library = Cudnn::open();
  if (!cudnn)
    cudnn = library.handle(queue.stream);
  const bool tf32 = options.tf32 && conv && conv->dtype() == plan::DType::F32;
  const std::string key = fmt::format("{} | cudnn {} | {}{}", context.name(), library.version(),
                                      conv ? keyOf(*conv) : keyOf(*attention), tf32 ? " tf32" : "");
  CudnnOptions choices;
  choices.smVersion = context.capability();
  choices.workspaceLimit = options.workspaceLimit;
  choices.deterministic = options.deterministic;
  choices.tf32 = tf32;
  choices.choice = tuning.find(key);
  auto graph =
      conv ? library.convolution(cudnn.get(), *conv, choices) : library.attention(cudnn.get(), *attention, choices);
  std::vector<StepOperand> operands;
  std::vector<size_t> bytes;
  for (const Place &place : conv ? placesOf(*conv) : placesOf(*attention)) {
    operands.push_back({scope.local(place.slot), place.offset});
    bytes.push_back(scope.slot(place.slot).bytes());
  }
  auto op = std::make_unique<CudnnOp>(std::move(graph), std::move(operands), *cudnn, queue);
  if (op->prepared().choice() != choices.choice && tuning.measures()) {
    op->chooseFastest(bytes, options.workspaceLimit);
    tuning.put(key, op->prepared().choice());
  }
  needed = op->prepared().workspaceBytes();
  return op;
}

} // namespace cleave::cuda
