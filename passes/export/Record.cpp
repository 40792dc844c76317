// Unpacks, changes and seals a plan.
#include "passes/export/Record.h"

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

namespace cleave::passes {

std::vector<uint8_t> withRecord(const plan::Plan &plan, const plan::SearchT &record) {
  plan::PlanT changed;
  plan.UnPackTo(&changed);
  changed.search = std::make_unique<plan::SearchT>(record);
  return packPlan(changed);
}

} // namespace cleave::passes
