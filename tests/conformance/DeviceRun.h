// Runs one step of a hand-written plan on a device, with given or random data. CLEAVE_CONFORMANCE_DEVICE names the
// device under test; default: the CPU.
#pragma once
#include "runtime/comm/LocalWorld.h"
#include "runtime/device/Device.h"
#include "runtime/device/Philox.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/DTypes.h"
#include "runtime/plan/Streams.h"
#include "tests/support/PlanBuilder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace cleave::test {

/// The random numbers of float slots: with small integers every sum is exact.
enum class Drawn { Integers, Reals };

/// A plan of one step, and its memory: one allocation per slot.
class StepRun {
public:
  explicit StepRun(PlanT made) : file(seal(made)) {
    const Program &program = *file->plan().programs()->Get(0);
    for (const Slot *slot : *program.slots())
      memory.emplace_back((slot->bytes() + 63) / 64 * 8 + 16);
  }

  std::byte *slot(uint32_t index) {
    auto at = reinterpret_cast<uintptr_t>(memory[index].data());
    return reinterpret_cast<std::byte *>((at + 63) / 64 * 64);
  }
  const Slot &info(uint32_t index) const { return *file->plan().programs()->Get(0)->slots()->Get(index); }
  int64_t count(uint32_t index) const {
    return static_cast<int64_t>(info(index).bytes()) / elementBytes(info(index).dtype());
  }

  /// Fills every slot: floats as `data` says, integers from [0, mostIndex).
  void draw(Drawn data, int64_t mostIndex) {
    for (uint32_t s = 0; s < memory.size(); ++s) {
      const plan::DType dtype = info(s).dtype();
      const int64_t size = count(s);
      std::byte *base = slot(s);
      for (int64_t i = 0; i < size; ++i) {
        const double u = philoxUniform(s + 1, 0, static_cast<uint64_t>(i));
        const double value = dtype == plan::DType::I32 ? std::floor(u * static_cast<double>(mostIndex)) - 1
                             : data == Drawn::Integers ? std::floor(u * 9) - 4
                                                       : u * 2 - 1;
        storeElement(base, i, dtype, value);
      }
    }
  }

  void run(const std::string &deviceName, unsigned threads, RunContext context = {{1}, 0}, int times = 1) {
    if (deviceName == "cuda")
      return runCuda(context, times);
    auto device = makeDevice(deviceName, threads);
    const Plan &plan = file->plan();
    const Program &program = *plan.programs()->Get(0);
    SlotScope scope(plan, program, *plan.ranks()->Get(0), *program.segments()->Get(0));
    std::vector<std::unique_ptr<Op>> ops;
    KernelTable kernels;
    for (const Step *step : *program.segments()->Get(0)->steps())
      ops.push_back(device->prepare(*step, scope, kernels));
    std::vector<uint64_t> workspace(device->workspaceBytes() / 8 + 16);
    auto at = reinterpret_cast<uintptr_t>(workspace.data());
    device->setWorkspace(reinterpret_cast<std::byte *>((at + 63) / 64 * 64));
    std::vector<std::byte *> table;
    for (uint32_t s : scope.slots())
      table.push_back(slot(s));
    for (int i = 0; i < times; ++i)
      for (auto &op : ops)
        op->run(table.data(), context);
  }

  std::vector<double> values(uint32_t index) {
    const plan::DType dtype = info(index).dtype();
    const std::byte *base = slot(index);
    std::vector<double> all(static_cast<size_t>(count(index)));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = loadElement(base, static_cast<int64_t>(i), dtype);
    return all;
  }

  std::shared_ptr<const PlanFile> file;

private:
  /// Runs with the CUDA executor, which owns device memory; twice step by step, or more often so that graphs are
  /// captured too.
  void runCuda(RunContext context, int times) {
    PlanT made = *std::unique_ptr<PlanT>(file->plan().UnPack());
    made.backend = "cuda";
    made.programs[0]->workspace_bytes = gpuWorkspace(*file->plan().programs()->Get(0));
    made.programs[0]->train[0]->microbatch = context.microbatch;
    const bool evaluates = context.random.count > 0;
    if (evaluates)
      std::swap(made.programs[0]->train, made.programs[0]->eval);
    struct Run {
      LocalWorld world{1};
      std::unique_ptr<Executor> executor;
    };
    // The last run keeps the device's context, which takes longer to make than all else here.
    static std::unique_ptr<Run> last;
    auto next = std::make_unique<Run>();
    next->executor = makeExecutor(seal(made), 0, next->world[0], {.device = "cuda", .tuning = "off"});
    last = std::move(next);
    const auto &executor = last->executor;
    for (uint32_t s = 0; s < memory.size(); ++s)
      std::copy_n(slot(s), info(s).bytes(), executor->persistent(s).data());
    executor->writeBack();
    for (int i = 0; i < times; ++i)
      if (evaluates)
        executor->eval(i % 2, context.random);
      else
        executor->train(static_cast<int64_t>(context.random.stream), i % 2);
    for (uint32_t s = 0; s < memory.size(); ++s)
      std::copy_n(executor->persistent(s).data(), info(s).bytes(), slot(s));
  }

  std::vector<std::vector<uint64_t>> memory;
};

/// The name of the device under test.
inline std::string testedDevice() {
  const char *name = std::getenv("CLEAVE_CONFORMANCE_DEVICE");
  return name && *name ? name : "cpu";
}

/// A one-rank plan around one step; `build` creates the slots, and the step in segment 0.
template <typename Build> PlanT stepPlan(Build build) {
  PlanT plan = makePlan(1);
  plan.seed = 99;
  ProgramWriter writer;
  writer.segment();
  build(writer);
  writer.action(0);
  plan.programs.push_back(writer.finish());
  return plan;
}

inline bool onGpu() { return testedDevice() == "cuda"; }

/// Half the distance from 1 to the next larger number.
inline double unitRoundoff(plan::DType type) {
  return type == plan::DType::BF16 ? 0x1p-8 : type == plan::DType::F16 ? 0x1p-11 : 0x1p-24;
}

} // namespace cleave::test
