// Unpacks, changes and seals a plan.
#include "passes/export/Record.h"

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/plan_generated.h"

namespace cleave::passes {

std::vector<uint8_t> withRecord(const plan::Plan &plan, const std::string &cluster, const plan::SearchT *record,
                                const std::vector<Alternative> &alternatives) {
  plan::PlanT changed;
  plan.UnPackTo(&changed);
  changed.cluster = cluster;
  if (record)
    changed.search = std::make_unique<plan::SearchT>(*record);
  changed.alternatives.clear();
  for (const Alternative &one : alternatives) {
    plan::AlternativeT &made = *changed.alternatives.emplace_back(std::make_unique<plan::AlternativeT>());
    made.decision = one.decision, made.value = one.value;
    made.step = one.step, made.busy = one.busy, made.communication = one.communication, made.idle = one.idle;
    made.peak_bytes = one.peakBytes, made.capacity = one.capacity;
  }
  return packPlan(changed);
}

} // namespace cleave::passes
