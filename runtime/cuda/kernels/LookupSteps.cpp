// Lookups by index, their gradients, and random numbers.
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/cuda/kernels/KernelTypes.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Slices.h"
#include "runtime/plan/Streams.h"
#include "runtime/plan/plan_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace cleave::cuda {

namespace {

class EmbeddingOp final : public Op {
public:
  EmbeddingOp(const plan::Embedding &e, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : table{scope.local(e.table())}, ids{scope.local(e.ids())}, out{scope.local(e.out())}, queue(queue) {
    const int64_t rowBytes = e.width() * static_cast<int64_t>(dtypeSize(e.dtype()));
    int64_t unit = 16;
    while (rowBytes % unit != 0)
      unit /= 2;
    arguments.rows = e.rows();
    arguments.units = rowBytes / unit;
    arguments.count = e.count();
    arguments.start = scope.scalar(e.start(), 0);
    function = kernels.function(fmt::format("cleave_lookup_{}", unit));
  }
  void run(SlotTable slots, const RunContext &) override {
    arguments.table = table.at(slots);
    arguments.ids = reinterpret_cast<const int32_t *>(ids.at(slots));
    arguments.out = out.at(slots);
    OwnKernels::start(function, queue, arguments, arguments.count * arguments.units);
  }

private:
  StepOperand table, ids, out;
  LookupArguments arguments{};
  CUfunction function;
  const Queue &queue;
};

/// The algorithm is described at LookupGradArguments.
class EmbeddingGradOp final : public Op {
public:
  EmbeddingGradOp(const plan::EmbeddingGrad &e, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : ids{scope.local(e.ids())}, grad{scope.local(e.grad())}, dtable{scope.local(e.dtable())},
        tableBytes(static_cast<size_t>(e.rows() * e.width()) * dtypeSize(e.dtype())), queue(queue) {
    arguments.rows = e.rows();
    arguments.width = e.width();
    arguments.count = e.count();
    arguments.start = scope.scalar(e.start(), 0);
    arguments.accumulate = e.accumulate();
    for (const char *name : {"count", "place", "fill", "sort"})
      functions.push_back(kernels.function(fmt::format("cleave_lookup_{}", name)));
    functions.push_back(kernels.function("cleave_lookup_sum_" + elementSuffix(e.dtype())));
  }

  void run(SlotTable slots, const RunContext &) override {
    placeScratch();
    arguments.ids = reinterpret_cast<const int32_t *>(ids.at(slots));
    arguments.grad = grad.at(slots);
    arguments.table = dtable.at(slots);
    check(driver().memsetD32Async(devicePointer(arguments.cursors), 0,
                                  lookupScratch(arguments.rows, arguments.count).zeroed, queue.stream),
          "cuMemsetD32Async");
    if (!arguments.accumulate && tableBytes)
      check(driver().memsetD8Async(devicePointer(arguments.table), 0, tableBytes, queue.stream), "cuMemsetD8Async");
    OwnKernels::start(functions[0], queue, arguments, arguments.count);
    OwnKernels::start(functions[1], queue, arguments, arguments.rows);
    OwnKernels::start(functions[2], queue, arguments, arguments.count);
    OwnKernels::start(functions[3], queue, arguments, arguments.count);
    OwnKernels::startBlocks(functions[4], queue, arguments, std::min(arguments.count, arguments.rows));
  }

private:
  /// In the order of lookupScratch.
  void placeScratch() {
    auto *at = reinterpret_cast<int32_t *>(queue.workspace);
    const auto take = [&](int64_t count) { return std::exchange(at, at + (count + 63) / 64 * 64); };
    arguments.cursors = take(64);
    arguments.counts = take(arguments.rows);
    arguments.filled = take(arguments.rows);
    arguments.places = take(arguments.rows);
    arguments.present = take(arguments.rows);
    arguments.loose = take(arguments.count);
    arguments.sorted = take(arguments.count);
  }

  StepOperand ids, grad, dtable;
  size_t tableBytes;
  LookupGradArguments arguments{};
  std::vector<CUfunction> functions;
  const Queue &queue;
};

class GatherOp final : public Op {
public:
  GatherOp(const plan::Gather &g, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : src{scope.local(g.src())}, index{scope.local(g.index())}, out{scope.local(g.out())},
        function(kernels.function(fmt::format("cleave_gather_{}", dtypeSize(g.dtype())))), queue(queue) {
    arguments.outer = g.outer(), arguments.extent = g.extent(), arguments.count = g.count();
    arguments.inner = g.inner();
  }
  void run(SlotTable slots, const RunContext &) override {
    arguments.from = src.at(slots);
    arguments.index = reinterpret_cast<const int32_t *>(index.at(slots));
    arguments.out = out.at(slots);
    OwnKernels::start(function, queue, arguments, arguments.outer * arguments.count * arguments.inner);
  }

private:
  StepOperand src, index, out;
  GatherArguments arguments{};
  CUfunction function;
  const Queue &queue;
};

class ScatterAddOp final : public Op {
public:
  ScatterAddOp(const plan::ScatterAdd &s, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : src{scope.local(s.src())}, index{scope.local(s.index())}, out{scope.local(s.out())},
        outBytes(static_cast<size_t>(s.outer() * s.extent() * s.inner()) * dtypeSize(s.dtype())),
        function(kernels.function("cleave_scatter_add_" + elementSuffix(s.dtype()))), queue(queue) {
    arguments.outer = s.outer(), arguments.extent = s.extent(), arguments.count = s.count();
    arguments.inner = s.inner();
  }
  void run(SlotTable slots, const RunContext &) override {
    arguments.from = src.at(slots);
    arguments.index = reinterpret_cast<const int32_t *>(index.at(slots));
    arguments.out = out.at(slots);
    if (outBytes)
      check(driver().memsetD8Async(devicePointer(arguments.out), 0, outBytes, queue.stream), "cuMemsetD8Async");
    OwnKernels::start(function, queue, arguments, arguments.outer * arguments.inner);
  }

private:
  StepOperand src, index, out;
  size_t outBytes;
  ScatterArguments arguments{};
  CUfunction function;
  const Queue &queue;
};

/// Reads stream and samples on the device, so that a captured graph draws new numbers in each run.
class RandomOp final : public Op {
public:
  RandomOp(const plan::Random &random, SlotScope &scope, const Queue &queue, OwnKernels &kernels)
      : out{scope.local(random.out())},
        function(kernels.function(random.dtype() == plan::DType::I1
                                      ? "cleave_random_bool"
                                      : "cleave_random_" + elementSuffix(random.dtype()))),
        queue(queue) {
    std::vector<int64_t> global;
    if (random.shape())
      global.assign(random.shape()->begin(), random.shape()->end());
    const std::vector<uint32_t> coords(scope.rank.coords()->begin(), scope.rank.coords()->end());
    const auto pieces =
        localPieces(scope.slot(random.out()).sharding(), global, meshSizes(scope.plan), coords, pieceElements);
    arguments.elements = std::accumulate(global.begin(), global.end(), int64_t{1}, std::multiplies<>());
    arguments.rowsOfMicrobatch = random.shared() ? 0 : scope.rows();
    std::vector<RandomPiece> list;
    for (const Piece &piece : pieces)
      list.push_back({piece.local, piece.global, piece.count});
    table = DeviceMemory::of(list.data(), list.size() * sizeof(RandomPiece), "the pieces of a random tensor");
    arguments.pieces = reinterpret_cast<const RandomPiece *>(table.data());
    arguments.pieceCount = static_cast<int64_t>(list.size());
    arguments.key = scope.plan.seed() ^ random.key();
    arguments.atLeast = static_cast<float>(random.at_least());
  }

  void run(SlotTable slots, const RunContext &context) override {
    arguments.out = out.at(slots);
    arguments.rows = queue.random;
    arguments.microbatch = std::max(0, context.microbatch);
    OwnKernels::startBlocks(function, queue, arguments, arguments.pieceCount);
  }

private:
  static constexpr int64_t pieceElements = 1024;
  StepOperand out;
  DeviceMemory table;
  RandomArguments arguments{};
  CUfunction function;
  const Queue &queue;
};

} // namespace

std::unique_ptr<Op> makeOwnOp(const plan::Embedding &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  return std::make_unique<EmbeddingOp>(op, scope, queue, kernels);
}

std::unique_ptr<Op> makeOwnOp(const plan::EmbeddingGrad &op, SlotScope &scope, const Queue &queue,
                              OwnKernels &kernels) {
  return std::make_unique<EmbeddingGradOp>(op, scope, queue, kernels);
}

std::unique_ptr<Op> makeOwnOp(const plan::Gather &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  return std::make_unique<GatherOp>(op, scope, queue, kernels);
}

std::unique_ptr<Op> makeOwnOp(const plan::ScatterAdd &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  return std::make_unique<ScatterAddOp>(op, scope, queue, kernels);
}

std::unique_ptr<Op> makeOwnOp(const plan::Random &op, SlotScope &scope, const Queue &queue, OwnKernels &kernels) {
  return std::make_unique<RandomOp>(op, scope, queue, kernels);
}

} // namespace cleave::cuda
