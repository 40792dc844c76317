// Valid plans that fuzzers modify, and the expected outcome: the checker finds a defect, or the plan runs.
#pragma once
#include "partitioner/simulate/Simulate.h"
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/data/DataSource.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/check/Check.h"
#include "runtime/plan/summary/PlanSummary.h"
#include "runtime/session/LearningRate.h"
#include "tests/support/EveryStep.h"
#include "tests/unit/runtime/plan/KernelCalls.h"
#include "tests/unit/runtime/plan/TwoRanks.h"
#include "tools/cleave/Commands.h"

#include <array>

namespace cleave::fuzz {

struct GoodPlan {
  std::vector<uint8_t> bytes;
  size_t ranks;
};

/// A flatbuffer of the plan with the descriptions of training and data that a compiled plan has.
inline std::vector<uint8_t> described(plan::PlanT plan) {
  test::describe(plan);
  return test::flatbuffer(plan);
}

/// The plan that the first byte of an input selects.
inline const GoodPlan &goodPlan(uint8_t which) {
  static const std::array<GoodPlan, 4> plans = {
      {{described(test::twoRanks()), 2},
       {described(test::twoRanksWithEpilogue(plan::Epilogue::Gelu)), 2},
       {described(test::KernelCalls("cpu").plan), 1},   // has no code, so it cannot run
       {test::flatbuffer(test::EveryStep().plan), 2}}}; // only its structure is valid
  return plans[which % plans.size()];
}

inline bool isSmall(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    if (program->peak_bytes() > 16 << 20)
      return false;
  return true;
}

/// Reads a plan whose structure is valid as `cleave show`, `diff` and `simulate` do.
inline void readAsTools(const PlanFile &file) try {
  if (!checkPlanStructure(file.plan()).empty())
    return;
  tool::showPage(summaryOf(file));
  tool::showSteps(file.plan());
  static const partitioner::Cluster cluster =
      partitioner::Cluster::parse("[devices.host]\nbackend = \"cpu\"\nmemory_gib = 1.0\nmemory_gb_per_s = 10.0\n"
                                  "peak_tflops = { fp32 = 0.1 }\n[[nodes]]\ndevices = { host = 2 }\n"
                                  "inside = { gb_per_s = 5.0, latency_us = 3.0 }\n",
                                  "fuzz");
  partitioner::simulate(file.plan(), cluster);
} catch (const Error &) {
}

/// Checks the plan. If the checker accepts it, reads its descriptions of training and data, and runs one training step
/// on `ranks` threads.
inline void checkAndRun(const std::vector<uint8_t> &sealed, size_t ranks) try {
  auto file = PlanFile::fromBytes(sealed, "fuzz");
  readAsTools(*file);
  if (!checkPlan(file->plan()).empty())
    return;
  for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{1} << 40})
    rateAt(learningRateOf(file->plan()), step, 1 << 20);
  for (const DataField &field : DataSpec::of(file->plan()).fields)
    field.bytes();
  if (!isSmall(file->plan()) || file->plan().ranks()->size() != ranks)
    return;
  LocalWorld world(ranks);
  runRanks(world, [&](unsigned rank) {
    const auto executor = makeExecutor(file, rank, world[rank], {.device = "reference"});
    executor->initialise();
    executor->train(1, 0);
  });
} catch (const Error &) {
}

} // namespace cleave::fuzz
