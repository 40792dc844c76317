// The plan checker on values by number, and on the order of microbatches.
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/plan/Pipeline.h"

#include <catch2/catch.hpp>

using namespace cleave;
using namespace cleave::test;

TEST_CASE("checker: values are those of the graph") {
  Pipeline p;
  numberValues(p.plan);
  CHECK(defects(p.plan).empty());
  auto &forward = *p.plan.programs[0]->segments[0], &update = *p.plan.programs[0]->segments[1];
  SECTION("a step left out") {
    update.steps.erase(update.steps.begin() + 1);
    CHECK_FOUND(p.plan, "update", "step 1", "it reads value", "which holds what slot", "(rule V1)");
  }
  SECTION("two steps change places") {
    std::swap(update.steps[0], update.steps[2]);
    CHECK_FOUND(p.plan, "step 0", "it reads value", "(rule V1)");
  }
  SECTION("an operand in another slot") {
    update.steps[2]->op.AsCopy()->src->slot = p.g;
    CHECK_FOUND(p.plan, "step 2", "it reads value", "(rule V1)");
  }
  SECTION("a step done again") {
    update.steps.push_back(std::make_unique<StepT>(*update.steps[2]));
    CHECK_FOUND(p.plan, "step 3", "it produces value", "which was already produced", "(rule V1)");
  }
  SECTION("values left out") {
    forward.steps[0]->values.pop_back();
    CHECK_FOUND(p.plan, "it has 3 operands and results, found 2 values", "(rule V1)");
  }
  SECTION("the last step left out") {
    update.steps.pop_back();
    CHECK_FOUND(p.plan, "update", "it must leave value", "(rule V2)");
  }
  SECTION("a result that is not listed") {
    update.leaves.clear();
    CHECK_FOUND(p.plan, "update", "which it does not list", "(rule V2)");
  }
}

TEST_CASE("checker: microbatches run in order") {
  Pipeline p;
  auto &actions = p.plan.programs[1]->train;
  std::swap(actions[0]->microbatch, actions[1]->microbatch);
  CHECK_FOUND(p.plan, "program 1", "microbatch 0 after 1", "upwards", "(rule G4)");
  p.plan.programs[1]->segments[0]->kind = SegmentKind::InputGradient;
  p.plan.schedule = "gpipe";
  CHECK_FALSE(found(defects(p.plan), {"(rule G4)"}));
}
