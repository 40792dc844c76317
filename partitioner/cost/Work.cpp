// The rate of a step's products.
#include "partitioner/cost/Work.h"

#include "runtime/plan/steps/Steps.h"

namespace cleave::partitioner {

const char *workClassName(WorkClass kind) {
  static constexpr const char *names[workClassCount] = {"nothing", "product", "convolution", "attention", "elementwise",
                                                        "copy",    "lookup",  "pooling",     "random"};
  return names[static_cast<size_t>(kind)];
}

namespace {

Rate rateOf(const plan::Plan &plan, plan::DType type) {
  if (type == plan::DType::F16)
    return Rate::Fp16;
  if (type == plan::DType::BF16)
    return Rate::Bf16;
  const bool tf32 = plan.training() && plan.training()->precision() == plan::Precision::Tf32;
  return tf32 ? Rate::Tf32 : Rate::Fp32;
}

} // namespace

StepWork workOf(const plan::Plan &plan, const plan::Program &program, const plan::Step &step) {
  StepWork made{steps::work(step, {plan, program})};
  made.rate = rateOf(plan, made.factors);
  return made;
}

} // namespace cleave::partitioner
