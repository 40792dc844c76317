// Predictions: one that several threads call.
#include "runtime/session/Predict.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <catch2/catch.hpp>
#include <thread>

using namespace cleave;

namespace {

/// The linear plan with its products y as an output.
std::shared_ptr<const PlanFile> withOutput() {
  plan::PlanT plan = test::linearPlan({.microbatches = 1});
  plan::ProgramT &program = *plan.programs[0];
  for (uint32_t slot = 0; slot < program.slots.size(); ++slot)
    if (program.slots[slot]->name == "y") {
      program.metrics.push_back(std::make_unique<plan::NamedSlotT>());
      program.metrics.back()->name = "output";
      program.metrics.back()->slot = slot;
    }
  return test::seal(plan);
}

} // namespace

TEST_CASE("threads that call one prediction get their own outputs", "[session]") {
  RunOptions options;
  options.device = "reference";
  Prediction prediction(withOutput(), options);
  const test::CountingData data(6, 5, 21, 13);
  constexpr int callers = 4;
  const auto outputsOf = [&](int caller) { // of another number of samples, from another one on
    std::vector<float> values;
    prediction.run(data, caller % 2 ? Split::Train : Split::Eval, caller, 3 * caller,
                   [&](size_t, std::span<const float> more) { values.insert(values.end(), more.begin(), more.end()); });
    return values;
  };
  std::vector<std::vector<float>> expected;
  for (int caller = 0; caller < callers; ++caller)
    expected.push_back(outputsOf(caller));
  CHECK(expected[3].size() == 9);
  CHECK(expected[3][0] != expected[3][1]);
  std::vector<int> wrong(callers, 0);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller)
    threads.emplace_back([&, caller] {
      for (int call = 0; call < 20; ++call)
        wrong[static_cast<size_t>(caller)] += outputsOf(caller) != expected[static_cast<size_t>(caller)];
    });
  for (std::thread &thread : threads)
    thread.join();
  CHECK(wrong == std::vector<int>(callers, 0));
}
