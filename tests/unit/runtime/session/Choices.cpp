// The checker on a plan's records of training and data: rules T9 and S11.
#include "tests/unit/runtime/plan/Defects.h"
#include "tests/unit/runtime/session/TestPlans.h"

#include <limits>

using namespace cleave;
using namespace cleave::test;

namespace {

/// Whether the checker reports `defect` by `rule` in the altered linear plan.
bool finds(const std::function<void(plan::PlanT &)> &alter, const std::string &defect, const std::string &rule) {
  plan::PlanT plan = linearPlan({});
  alter(plan);
  for (const std::string &found : checkPlan(seal(plan)->plan()))
    if (found.find(defect) != std::string::npos && found.find("(rule " + rule + ")") != std::string::npos)
      return true;
  return false;
}

} // namespace

TEST_CASE("checker: what a plan says of its training is possible", "[session]") {
  using plan::PlanT;
  CHECK(checkPlan(seal(linearPlan({}))->plan()).empty());
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(finds([](PlanT &p) { p.training->precision = plan::Precision::Bf16; }, "level O0", "T9"));
  CHECK(finds([](PlanT &p) { p.training->precision = plan::Precision(9); }, "training.precision is 9", "N1"));
  CHECK(finds([](PlanT &p) { p.training->level = 2; }, "level O2", "T9"));
  CHECK(finds([](PlanT &p) { p.training->reduce = plan::Precision::Fp16; }, "reduced in precision", "T9"));
  CHECK(finds([&](PlanT &p) { p.training->loss_scale = nan; }, "training.loss_scale is nan", "N1"));
  CHECK(finds([](PlanT &p) { p.training->loss_scale = 1; }, "loss scale", "T9")); // without loss scaling
  for (const double scale : {0.5, 1e9})
    CHECK(finds([&](PlanT &p) { p.training->loss_scaling = plan::LossScaling::Fixed, p.training->loss_scale = scale; },
                "loss scale", "T9"));
  CHECK(finds([](PlanT &p) { p.training->loss_scaling = plan::LossScaling(9); }, "training.loss_scaling is 9", "N1"));
  CHECK(finds([](PlanT &p) { p.training->rate->kind = plan::RateKind(7); }, "training.rate.kind is 7", "N1"));
  CHECK(finds([](PlanT &p) { p.training->rate->every = 0; }, "training.rate.every is 0", "N1"));
  CHECK(finds([](PlanT &p) { p.training->rate->warmup = -1; }, "training.rate.warmup is -1", "N1"));
  CHECK(finds([](PlanT &p) { p.training->rate->steps = -2; }, "training.rate.steps is -2", "N1"));
  CHECK(finds([&](PlanT &p) { p.training->rate->base = nan; }, "training.rate.base is nan, must be finite", "N1"));
  CHECK(finds([](PlanT &p) { p.training->optimizer->kind = plan::OptimizerKind(5); }, "training.optimizer.kind is 5",
              "N1"));
  PlanT tf32 = linearPlan({}), none = linearPlan({});
  tf32.training->precision = plan::Precision::Tf32; // tf32 permits lower precision, it does not require it
  none.training.reset();
  CHECK(checkPlan(seal(tf32)->plan()).empty());
  CHECK(checkPlan(seal(none)->plan()).empty());
}

TEST_CASE("checker: inputs are fields of the data", "[session]") {
  using plan::PlanT;
  CHECK(finds([](PlanT &p) { p.data->kind = plan::DataKind(9); }, "data.kind is 9", "N1"));
  CHECK(finds([](PlanT &p) { p.data->context = -1; }, "data.context is -1", "N1"));
  CHECK(finds([](PlanT &p) { p.data->fields[0]->dtype = plan::DType::F16; }, "must be of f32, i32 or u8", "T9"));
  CHECK(finds([](PlanT &p) { p.data->fields[0]->shape[1] = 0; }, "dimension 1 is 0", "T9"));
  CHECK(
      finds([](PlanT &p) { p.data->fields[0]->shape.assign(20, 1); }, "data.fields[0].shape has 20 dimensions", "N1"));
  CHECK(finds([](PlanT &p) { p.data->fields[1]->classes = -3; }, "data.fields[1].classes is -3", "N1"));
  CHECK(finds([](PlanT &p) { p.data->fields[0]->name.clear(); }, "has no name", "T9"));
  CHECK(finds([](PlanT &p) { p.data->fields[0]->name = "picture"; }, "'image' is no field of the data", "S11"));
  CHECK(finds([](PlanT &p) { p.data->fields[0]->shape[1] += 1; }, "reads 30 f32 a sample", "S11"));
  CHECK(finds([](PlanT &p) { p.data->fields[1]->dtype = plan::DType::F32; }, "'label' reads 1 i32", "S11"));
  CHECK(finds([](PlanT &p) { p.programs[0]->inputs[0]->name = "label"; }, "which has another tensor", "S11"));
  CHECK(finds([](PlanT &p) { p.programs[0]->inputs.pop_back(); }, "bound to no field", "S11"));
  CHECK(finds([](PlanT &p) { p.programs[0]->inputs[1]->slot = p.programs[0]->inputs[0]->slot; }, "two inputs", "S11"));
  PlanT none = linearPlan({});
  none.data.reset();
  CHECK(checkPlan(seal(none)->plan()).empty());
}
