// Valid plans that fuzzers modify, and the expected outcome: the checker finds a defect, or the plan runs.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Check.h"
#include "tests/unit/runtime/plan/KernelCalls.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

#include <array>

namespace cleave::fuzz {

struct GoodPlan {
  std::vector<uint8_t> bytes;
  size_t ranks;
};

/// The plan that the first byte of an input says.
inline const GoodPlan &goodPlan(uint8_t which) {
  static const std::array<GoodPlan, 3> plans = {
      {{test::flatbuffer(test::twoRanks()), 2},
       {test::flatbuffer(test::twoRanksWithEpilogue(plan::Epilogue::Gelu)), 2},
       {test::flatbuffer(test::KernelCalls("cpu").plan), 1}}}; // without code: refused
  return plans[which % plans.size()];
}

inline bool isSmall(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    if (program->peak_bytes() > 16 << 20)
      return false;
  return true;
}

/// Checks the plan and, where the checker accepts it, runs a step of it on `ranks` threads.
inline void checkAndRun(const std::vector<uint8_t> &sealed, size_t ranks) try {
  auto file = PlanFile::fromBytes(sealed, "fuzz");
  if (!checkPlan(file->plan()).empty() || !isSmall(file->plan()) || file->plan().ranks()->size() != ranks)
    return;
  LocalWorld world(ranks);
  runRanks(world, [&](unsigned rank) {
    Executor executor(file, rank, world[rank], {.device = "reference"});
    executor.initialise();
    executor.train(1, 0);
  });
} catch (const Error &) {
}

} // namespace cleave::fuzz
