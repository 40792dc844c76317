// Valid plans that fuzzers modify, and the expected outcome: the checker finds a defect, or the plan runs.
#pragma once
#include "runtime/base/Error.h"
#include "runtime/comm/LocalWorld.h"
#include "runtime/data/DataSource.h"
#include "runtime/executor/Executor.h"
#include "runtime/plan/Check.h"
#include "runtime/session/LearningRate.h"
#include "tests/unit/runtime/plan/KernelCalls.h"
#include "tests/unit/runtime/plan/TwoRanks.h"

#include <array>

namespace cleave::fuzz {

struct GoodPlan {
  std::vector<uint8_t> bytes;
  size_t ranks;
};

/// A flatbuffer of the plan with the descriptions of training and data that a compiled plan has.
inline std::vector<uint8_t> described(plan::PlanT plan) {
  plan.training = std::make_unique<plan::TrainingT>();
  plan.training->rate = std::make_unique<plan::LearningRateT>();
  plan.training->rate->kind = plan::RateKind::Step;
  plan.training->optimizer = std::make_unique<plan::OptimizerT>();
  plan.data = std::make_unique<plan::DataT>();
  for (const auto &tensor : plan.tensors)
    if (tensor->kind == plan::TensorKind::Input) {
      auto &field = plan.data->fields.emplace_back(std::make_unique<plan::DataFieldT>());
      field->name = tensor->name;
      field->dtype = tensor->dtype;
      field->shape.assign(tensor->shape.begin() + 1, tensor->shape.end());
    }
  return test::flatbuffer(plan);
}

/// The plan that the first byte of an input selects.
inline const GoodPlan &goodPlan(uint8_t which) {
  static const std::array<GoodPlan, 3> plans = {
      {{described(test::twoRanks()), 2},
       {described(test::twoRanksWithEpilogue(plan::Epilogue::Gelu)), 2},
       {described(test::KernelCalls("cpu").plan), 1}}}; // has no code, so it cannot run
  return plans[which % plans.size()];
}

inline bool isSmall(const plan::Plan &plan) {
  for (const plan::Program *program : *plan.programs())
    if (program->peak_bytes() > 16 << 20)
      return false;
  return true;
}

/// Checks the plan. If the checker accepts it, reads its descriptions of training and data, and runs one training step
/// on `ranks` threads.
inline void checkAndRun(const std::vector<uint8_t> &sealed, size_t ranks) try {
  auto file = PlanFile::fromBytes(sealed, "fuzz");
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
