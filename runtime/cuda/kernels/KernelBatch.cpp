// Several calls of one generated kernel in one launch. The table that tells every block its call (plan.fbs,
// KernelBatch) is built at load, once per placement of the segment's slots, and stays in device memory.
#include "runtime/cuda/executor/StepOps.h"
#include "runtime/plan/plan_generated.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace cleave::cuda {

namespace {

class KernelBatchOp final : public Op {
public:
  KernelBatchOp(const plan::KernelBatch &batch, SlotScope &scope, const Queue &queue, CUfunction function,
                unsigned threads)
      : function(function), threads(threads), queue(queue) {
    for (const plan::Kernel *call : *batch.calls()) {
      if (call->extent() == 0)
        continue;
      calls.push_back({KernelOperands(*call, scope), call->extent(), std::max(1u, call->blocks())});
      blocks += calls.back().blocks;
    }
    count = static_cast<int64_t>(calls.size());
  }
  KernelBatchOp(const KernelBatchOp &) = delete;

  void place(SlotTable slots) override {
    if (count == 0)
      return;
    std::vector<uint32_t> words = tableOf(slots);
    const auto same = std::find_if(placed.begin(), placed.end(), [&](const Placed &one) { return one.words == words; });
    if (same != placed.end())
      return same->slots.push_back(slots);
    DeviceMemory memory = DeviceMemory::of(words.data(), words.size() * sizeof words[0], "a table of kernel calls");
    placed.push_back({{slots}, std::move(words), std::move(memory)});
  }

  void run(SlotTable slots, const RunContext &) override {
    if (count == 0)
      return;
    std::byte *table = tableAt(slots);
    void *parameters[] = {&table, &count};
    check(driver().launchKernel(function, blocks, 1, 1, threads, 1, 1, 0, queue.stream, parameters, nullptr),
          "cuLaunchKernel");
  }

private:
  struct Call {
    KernelOperands operands;
    int64_t extent;
    uint32_t blocks;
  };
  /// A table and the slot tables that it belongs to.
  struct Placed {
    std::vector<SlotTable> slots;
    std::vector<uint32_t> words;
    DeviceMemory memory;
  };

  std::vector<uint32_t> tableOf(SlotTable slots) const {
    std::vector<uint64_t> wide;
    std::vector<uint32_t> ofBlock;
    for (const Call &call : calls) {
      wide.insert(wide.end(), {ofBlock.size(), call.blocks, static_cast<uint64_t>(call.extent)});
      for (const StepOperand &buffer : call.operands.buffers)
        wide.push_back(reinterpret_cast<uint64_t>(buffer.at(slots)));
      for (int64_t scalar : call.operands.scalars)
        wide.push_back(static_cast<uint64_t>(scalar));
      ofBlock.insert(ofBlock.end(), call.blocks, static_cast<uint32_t>(&call - calls.data()));
    }
    std::vector<uint32_t> words(2 * wide.size());
    std::memcpy(words.data(), wide.data(), wide.size() * sizeof wide[0]);
    words.insert(words.end(), ofBlock.begin(), ofBlock.end());
    return words;
  }

  std::byte *tableAt(SlotTable slots) const {
    for (const Placed &one : placed)
      if (std::find(one.slots.begin(), one.slots.end(), slots) != one.slots.end())
        return one.memory.data();
    assert(false && "an Op is told of every table that it is run with");
    return nullptr;
  }

  CUfunction function;
  unsigned threads;
  uint32_t blocks = 0;
  int64_t count = 0;
  std::vector<Call> calls;
  std::vector<Placed> placed;
  const Queue &queue;
};

} // namespace

std::unique_ptr<Op> makeGeneratedOp(const plan::KernelBatch &op, SlotScope &scope, const Queue &queue,
                                    CUfunction function, unsigned threads) {
  return std::make_unique<KernelBatchOp>(op, scope, queue, function, threads);
}

} // namespace cleave::cuda
